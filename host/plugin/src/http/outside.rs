//! What of a request the host keeps for a guest before it is sent, and how a guest learns what went wrong behind an answer's
//! header fields.
//!
//! wasmtime keeps texts of any size, and a guest can have a thousand requests that it never sends, each with another one. So
//! the functions that take texts are ours: they refuse what is too long as they refuse what makes no sense, and hand the rest
//! to wasmtime's.

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi_http::p2::bindings::http::{outgoing_handler, types};
use wasmtime_wasi_http::{Error, WasiHttp, WasiHttpView as _};

use types::{ErrorCode, HostOutgoingRequest as _, IoError, Method, OutgoingRequest, Scheme};

use crate::host::Host;

/// The interface that has them, as wasmtime names it.
const TYPES: &str = "wasi:http/types@0.2.12";
/// Bytes of a method that is none of the usual ones, and of such a scheme.
const WORD_BYTES: usize = 64;
/// Bytes of a host with its port: a name has 253 at most.
const AUTHORITY_BYTES: usize = 300;
/// Bytes of a path with its query; most servers take 8 KiB.
const PATH_BYTES: usize = 16 << 10;

/// What a guest's function of this kind says.
type Taken = Result<(), ()>;

/// Links `wasi:http` as guests have it.
pub(crate) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    let options = types::LinkOptions::default();
    types::add_to_linker::<_, WasiHttp>(linker, &options, Host::http)?;
    outgoing_handler::add_to_linker::<_, WasiHttp>(linker, Host::http)?;
    linker.allow_shadowing(true);
    let shadowed = shadow(linker);
    linker.allow_shadowing(false);
    shadowed
}

fn shadow(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    let mut types = linker.instance(TYPES)?;
    types.func_wrap("[method]outgoing-request.set-method", set_method)?;
    types.func_wrap("[method]outgoing-request.set-scheme", set_scheme)?;
    types.func_wrap("[method]outgoing-request.set-authority", set_authority)?;
    types.func_wrap("[method]outgoing-request.set-path-with-query", set_path)?;
    types.func_wrap("http-error-code", error_code)
}

type Request = Resource<OutgoingRequest>;

fn set_method(
    mut store: StoreContextMut<'_, Host>,
    (request, method): (Request, Method),
) -> wasmtime::Result<(Taken,)> {
    Ok((match &method {
        Method::Other(text) if text.len() > WORD_BYTES => Err(()),
        _ => store.data_mut().http().set_method(request, method)?,
    },))
}

fn set_scheme(
    mut store: StoreContextMut<'_, Host>,
    (request, scheme): (Request, Option<Scheme>),
) -> wasmtime::Result<(Taken,)> {
    Ok((match &scheme {
        Some(Scheme::Other(text)) if text.len() > WORD_BYTES => Err(()),
        _ => store.data_mut().http().set_scheme(request, scheme)?,
    },))
}

fn set_authority(
    mut store: StoreContextMut<'_, Host>,
    (request, authority): (Request, Option<String>),
) -> wasmtime::Result<(Taken,)> {
    Ok((match &authority {
        Some(text) if text.len() > AUTHORITY_BYTES => Err(()),
        _ => store.data_mut().http().set_authority(request, authority)?,
    },))
}

fn set_path(
    mut store: StoreContextMut<'_, Host>,
    (request, path): (Request, Option<String>),
) -> wasmtime::Result<(Taken,)> {
    Ok((match &path {
        Some(text) if text.len() > PATH_BYTES => Err(()),
        _ => store.data_mut().http().set_path_with_query(request, path)?,
    },))
}

fn error_code(
    mut store: StoreContextMut<'_, Host>,
    (error,): (Resource<IoError>,),
) -> wasmtime::Result<(Option<ErrorCode>,)> {
    let error = store.data_mut().http().table.get(&error)?;
    Ok((code(error),))
}

/// The code of what ended the stream of an answer's body: the errors of `body.rs`, which wasmtime hands on as they are.
fn code(error: &wasmtime::Error) -> Option<ErrorCode> {
    if let Some(code) = error.downcast_ref::<ErrorCode>() {
        return Some(code.clone());
    }
    Some(match error.downcast_ref::<Error>()? {
        Error::HttpResponseTimeout => ErrorCode::HttpResponseTimeout,
        Error::HttpResponseBodySize(limit) => ErrorCode::HttpResponseBodySize(*limit),
        Error::HttpResponseTrailerSectionSize(bytes) => ErrorCode::HttpResponseTrailerSectionSize(*bytes),
        Error::HttpResponseIncomplete => ErrorCode::HttpResponseIncomplete,
        _other => ErrorCode::InternalError(None),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_a_body_has_a_code() {
        let code = |error: Error| code(&wasmtime::Error::from(error));
        assert!(matches!(code(Error::HttpResponseTimeout), Some(ErrorCode::HttpResponseTimeout)));
        assert!(matches!(code(Error::HttpResponseBodySize(Some(7))), Some(ErrorCode::HttpResponseBodySize(Some(7)))));
        assert!(matches!(code(Error::HttpResponseIncomplete), Some(ErrorCode::HttpResponseIncomplete)));
        assert!(super::code(&wasmtime::format_err!("something else")).is_none());
    }
}
