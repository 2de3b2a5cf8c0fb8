//! Takes the body of a successful answer out of the SDK's hands, where the call asks for it.
//!
//! A call of ours carries an [`Exchange`] through the SDK's configuration bag. The protocol finds it there, sends the
//! request in the format that it asks for, and puts the answer's body into it instead of decoding it. A call without
//! one is the SDK's from end to end.

use std::sync::{Arc, Mutex, PoisonError};

use aws_sdk_kinesis::Client;
use aws_smithy_json::protocol::aws_json_rpc::AwsJsonRpcProtocol;
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::{
    BeforeDeserializationInterceptorContextMut, BeforeSerializationInterceptorContextRef,
};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_runtime_api::http::{Headers, Request, Response};
use aws_smithy_schema::codec::DynCodec;
use aws_smithy_schema::error_envelope::sanitize_error_code;
use aws_smithy_schema::protocol::{ClientProtocolInner, SharedClientProtocol};
use aws_smithy_schema::serde::{SerdeError, SerializableStruct, ShapeDeserializer};
use aws_smithy_schema::{Schema, ShapeId};
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::byte_stream::ByteStream;
use aws_smithy_types::config_bag::{ConfigBag, Storable, StoreReplace};
use aws_smithy_types::endpoint::Endpoint;
use aws_smithy_types::error::metadata::{Builder as ErrorMetadataBuilder, ErrorMetadata};
use aws_smithy_types::{BigDecimal, BigInteger, Blob, DateTime, Document};
use bytes::BytesMut;

use super::cbor;
use super::one_piece::{Bound, TooLarge, in_one_piece};
use super::{Body, Format};

/// What the service calls CBOR (the Java SDK's default for Kinesis).
const CBOR: &str = "application/x-amz-cbor-1.1";

/// The SDK's protocol, or another one that the client's owner put there, and ours around it.
#[derive(Debug)]
pub(crate) struct Protocol {
    inner: SharedClientProtocol,
}

/// One call whose answer's body is taken. Cheap to clone: one end goes with the call as an interceptor, the other
/// stays with the caller.
#[derive(Debug, Clone)]
pub(crate) struct Exchange(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// How the request is written; the answer may be written otherwise.
    request: Format,
    bound: Bound,
    answer: Mutex<Option<(Format, SdkBody)>>,
}

/// An answer, or an error, of which nothing is told.
struct Nothing;

// === impl Protocol ===

impl Protocol {
    /// The client, speaking this protocol: the same for every call that carries no [`Exchange`].
    pub(crate) fn around(client: &Client) -> Client {
        let config = client.config();
        let inner = config.protocol().cloned().unwrap_or_else(|| {
            let json = AwsJsonRpcProtocol::aws_json_1_1().with_default_namespace("com.amazonaws.kinesis");
            SharedClientProtocol::new(json)
        });
        Client::from_conf(config.to_builder().protocol(Self { inner }).build())
    }
}

impl ClientProtocolInner for Protocol {
    type Request = Request;
    type Response = Response;

    fn protocol_id(&self) -> &ShapeId<'static> {
        self.inner.protocol_id()
    }

    fn serialize_request(
        &self,
        input: &dyn SerializableStruct,
        input_schema: &Schema<'_>,
        endpoint: &str,
        cfg: &ConfigBag,
    ) -> Result<Request, SerdeError> {
        let mut request = self.inner.serialize_request(input, input_schema, endpoint, cfg)?;
        if cfg.load::<Exchange>().is_some_and(|exchange| exchange.0.request == Format::Cbor) {
            let body = cbor::write(input, input_schema)?;
            let headers = request.headers_mut();
            headers.insert("Content-Type", CBOR);
            headers.insert("Content-Length", body.len().to_string());
            *request.body_mut() = SdkBody::from(body);
        }
        Ok(request)
    }

    fn deserialize_response<'a>(
        &self,
        response: &'a Response,
        output_schema: &Schema<'_>,
        cfg: &'a ConfigBag,
    ) -> Result<Box<dyn ShapeDeserializer + 'a>, SerdeError> {
        let Some(exchange) = cfg.load::<Exchange>() else {
            return self.inner.deserialize_response(response, output_schema, cfg);
        };
        // No copy: the clone shares the bytes, and the SDK drops its own when the call returns.
        let body = response.body().try_clone().ok_or_else(|| SerdeError::custom("the body was not read"))?;
        *exchange.0.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some((format(response.headers()), body));
        Ok(Box::new(Nothing))
    }

    fn parse_error_metadata(&self, response: &Response, cfg: &ConfigBag) -> Result<ErrorMetadataBuilder, SerdeError> {
        if format(response.headers()) == Format::Json {
            return self.inner.parse_error_metadata(response, cfg);
        }
        let error = cbor::read_error(response.body().bytes().unwrap_or_default());
        let error = error.map_err(|malformed| SerdeError::invalid_input(format!("the error in CBOR: {malformed}")))?;
        // The header goes first, as it does in the SDK's JSON.
        let code = response.headers().get("x-amzn-errortype").or(error.code.as_deref()).map(sanitize_error_code);
        let mut metadata = ErrorMetadata::builder();
        if let Some(code) = code {
            metadata = metadata.code(code);
        }
        if let Some(message) = error.message {
            metadata = metadata.message(message);
        }
        Ok(metadata)
    }

    fn deserialize_error_response<'a>(
        &self,
        response: &'a Response,
        cfg: &'a ConfigBag,
    ) -> Result<Box<dyn ShapeDeserializer + 'a>, SerdeError> {
        match format(response.headers()) {
            Format::Json => self.inner.deserialize_error_response(response, cfg),
            // Kinesis' errors have a message and nothing else, and the SDK takes it from the metadata.
            Format::Cbor => Ok(Box::new(Nothing)),
        }
    }

    fn update_endpoint(&self, request: &mut Request, endpoint: &Endpoint, cfg: &ConfigBag) -> Result<(), SerdeError> {
        self.inner.update_endpoint(request, endpoint, cfg)
    }

    fn payload_codec(&self) -> Option<&dyn DynCodec> {
        self.inner.payload_codec()
    }

    fn event_stream_media_type(&self) -> Option<&str> {
        self.inner.event_stream_media_type()
    }

    fn parse_event_stream_error_metadata(&self, payload: &[u8]) -> Result<ErrorMetadataBuilder, SerdeError> {
        self.inner.parse_event_stream_error_metadata(payload)
    }
}

fn format(headers: &Headers) -> Format {
    let media_type = headers.get("content-type").unwrap_or_default().split(';').next().unwrap_or_default();
    if media_type.trim().eq_ignore_ascii_case(CBOR) { Format::Cbor } else { Format::Json }
}

// === impl Exchange ===

impl Exchange {
    /// For one call, whose answer is received if it has no more than `most` bytes.
    pub(crate) fn new(request: Format, most: Option<u64>) -> Self {
        Self(Arc::new(Inner { request, bound: Bound::new(most), answer: Mutex::new(None) }))
    }

    /// Whether the answer was larger than it may be. The call has failed then.
    pub(crate) fn refused(&self) -> Option<TooLarge> {
        self.0.bound.refused()
    }

    /// The body of the answer, after the call returned without an error. The error says what is wrong.
    pub(crate) async fn body(self) -> Result<Body, String> {
        let answer = self.0.answer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (format, body) = answer.ok_or("the client does not speak the protocol that it was given")?;
        // It is in memory, in one piece: nothing is waited for and nothing copied.
        let collected = ByteStream::new(body).collect().await.map_err(|error| error.to_string())?;
        let mut pieces = collected.into_segments();
        let mut bytes = pieces.next().unwrap_or_default();
        for piece in pieces {
            let mut joined = BytesMut::from(&bytes[..]);
            joined.extend_from_slice(&piece);
            bytes = joined.freeze();
        }
        Ok(Body { format, bytes })
    }
}

impl Storable for Exchange {
    type Storer = StoreReplace<Self>;
}

impl Intercept for Exchange {
    fn name(&self) -> &'static str {
        "ShardmillExchange"
    }

    fn read_before_execution(
        &self,
        _context: &BeforeSerializationInterceptorContextRef<'_>,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        cfg.interceptor_state().store_put(self.clone());
        Ok(())
    }

    // After the SDK's own interceptors, which watch that bytes keep coming.
    fn modify_before_deserialization(
        &self,
        context: &mut BeforeDeserializationInterceptorContextMut<'_>,
        _components: &RuntimeComponents,
        _cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let response = context.response_mut();
        let format = format(response.headers());
        let length = response.headers().get("content-length").and_then(|length| length.parse().ok());
        let body = std::mem::replace(response.body_mut(), SdkBody::taken());
        *response.body_mut() = in_one_piece(body, length, format, self.0.bound.clone());
        Ok(())
    }
}

// === impl Nothing ===

impl Nothing {
    fn asked<T>() -> Result<T, SerdeError> {
        Err(SerdeError::unsupported("an answer whose body was taken has no members"))
    }
}

/// A structure without members, and so no other method is ever called.
impl ShapeDeserializer for Nothing {
    fn read_struct(
        &mut self,
        _: &Schema<'_>,
        _: &mut dyn FnMut(&Schema<'_>, &mut dyn ShapeDeserializer) -> Result<(), SerdeError>,
    ) -> Result<(), SerdeError> {
        Ok(())
    }

    fn read_list(
        &mut self,
        _: &Schema<'_>,
        _: &mut dyn FnMut(&mut dyn ShapeDeserializer) -> Result<(), SerdeError>,
    ) -> Result<(), SerdeError> {
        Self::asked()
    }

    fn read_map(
        &mut self,
        _: &Schema<'_>,
        _: &mut dyn FnMut(String, &mut dyn ShapeDeserializer) -> Result<(), SerdeError>,
    ) -> Result<(), SerdeError> {
        Self::asked()
    }

    fn read_boolean(&mut self, _: &Schema<'_>) -> Result<bool, SerdeError> {
        Self::asked()
    }

    fn read_byte(&mut self, _: &Schema<'_>) -> Result<i8, SerdeError> {
        Self::asked()
    }

    fn read_short(&mut self, _: &Schema<'_>) -> Result<i16, SerdeError> {
        Self::asked()
    }

    fn read_integer(&mut self, _: &Schema<'_>) -> Result<i32, SerdeError> {
        Self::asked()
    }

    fn read_long(&mut self, _: &Schema<'_>) -> Result<i64, SerdeError> {
        Self::asked()
    }

    fn read_float(&mut self, _: &Schema<'_>) -> Result<f32, SerdeError> {
        Self::asked()
    }

    fn read_double(&mut self, _: &Schema<'_>) -> Result<f64, SerdeError> {
        Self::asked()
    }

    fn read_big_integer(&mut self, _: &Schema<'_>) -> Result<BigInteger, SerdeError> {
        Self::asked()
    }

    fn read_big_decimal(&mut self, _: &Schema<'_>) -> Result<BigDecimal, SerdeError> {
        Self::asked()
    }

    fn read_string(&mut self, _: &Schema<'_>) -> Result<String, SerdeError> {
        Self::asked()
    }

    fn read_blob(&mut self, _: &Schema<'_>) -> Result<Blob, SerdeError> {
        Self::asked()
    }

    fn read_timestamp(&mut self, _: &Schema<'_>) -> Result<DateTime, SerdeError> {
        Self::asked()
    }

    fn read_document(&mut self, _: &Schema<'_>) -> Result<Document, SerdeError> {
        Self::asked()
    }

    fn is_null(&self) -> bool {
        false
    }

    fn container_size(&self) -> Option<usize> {
        None
    }
}
