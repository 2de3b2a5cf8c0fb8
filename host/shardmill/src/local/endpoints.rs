//! Where the local backend listens, and how an AWS SDK is pointed there.

/// Base addresses of the local services, without a trailing slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints {
    /// `http://127.0.0.1:PORT` of Kinesis.
    pub kinesis: String,
    /// `http://127.0.0.1:PORT` of DynamoDB.
    pub dynamodb: String,
}

impl Endpoints {
    /// The environment that sends any AWS SDK or the AWS CLI to the local services. The credentials are placeholders:
    /// requests have to be signed, nobody checks with what.
    pub fn environment(&self) -> Vec<(String, String)> {
        [
            ("AWS_ENDPOINT_URL_KINESIS", self.kinesis.as_str()),
            ("AWS_ENDPOINT_URL_DYNAMODB", self.dynamodb.as_str()),
            ("AWS_REGION", super::kinesis::REGION),
            ("AWS_ACCESS_KEY_ID", "local"),
            ("AWS_SECRET_ACCESS_KEY", "local"),
            ("AWS_EC2_METADATA_DISABLED", "true"),
        ]
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .to_vec()
    }
}
