//! Requests to the provider: its description, its keys, and tokens for codes.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use form_urlencoded::{Serializer, byte_serialize};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, StatusCode, Uri};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::error::{OpenIdError, short};
use super::file::{OpenIdFile, web_address};
use super::proof::Proof;
use super::token::Keys;
use crate::outgoing::{self, Answer, Call, CallError};

/// Time limit for one request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of an answer.
const MAX_ANSWER_BYTES: usize = 256 << 10;

/// What the head knows about the provider.
#[derive(Debug, Clone)]
pub(super) struct Provider {
    /// Where browsers go.
    pub(super) authorization: String,
    token: Uri,
    key_set: Uri,
    /// Whether the head's secret goes into the body instead of a header.
    puts_secret_in_body: bool,
    pub(super) keys: Keys,
}

/// OpenID Provider Metadata.
#[derive(Deserialize)]
struct Metadata {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Tokens {
    id_token: String,
}

/// Error answer of the token endpoint.
#[derive(Deserialize)]
struct Refusal {
    error: String,
    error_description: Option<String>,
}

impl Provider {
    /// Reads the provider's description and keys.
    pub(super) async fn discover(file: &OpenIdFile) -> Result<Self, OpenIdError> {
        let place = format!("{}/.well-known/openid-configuration", file.issuer.trim_end_matches('/'));
        let place = web_address(&place).ok_or_else(|| OpenIdError::invalid("its address cannot be extended"))?;
        let found: Metadata = get(file, &place).await?;
        if found.issuer != file.issuer {
            return Err(OpenIdError::Invalid(format!(
                "its description is for the issuer {:?}, but openid.toml says {:?}",
                short(&found.issuer),
                file.issuer
            )));
        }
        let endpoint = |name: &str, text: &str| match web_address(text) {
            Some(uri) if uri.scheme_str() == Some("https") || !file.is_encrypted() => Ok(uri),
            _ => Err(OpenIdError::Invalid(format!("its {name} does not begin with https://"))),
        };
        endpoint("authorization_endpoint", &found.authorization_endpoint)?;
        let token = endpoint("token_endpoint", &found.token_endpoint)?;
        let key_set = endpoint("jwks_uri", &found.jwks_uri)?;
        let methods = found.token_endpoint_auth_methods_supported;
        let puts_secret_in_body = methods.is_some_and(|methods| {
            let has = |name: &str| methods.iter().any(|method| method == name);
            has("client_secret_post") && !has("client_secret_basic")
        });
        let authorization = found.authorization_endpoint;
        let keys = Keys::default();
        Self { authorization, token, key_set, puts_secret_in_body, keys }.with_new_keys(file).await
    }

    /// Reads the keys again.
    pub(super) async fn with_new_keys(self, file: &OpenIdFile) -> Result<Self, OpenIdError> {
        let answer = send(file, Method::GET, &self.key_set, HeaderMap::new(), Bytes::new()).await?;
        let keys = read_body(&answer).and_then(Keys::parse);
        let keys = keys.ok_or_else(|| OpenIdError::invalid("its keys cannot be read"))?;
        Ok(Self { keys, ..self })
    }

    /// Exchanges a code for an ID token.
    pub(super) async fn redeem(
        &self,
        file: &OpenIdFile,
        code: &str,
        proof: &Proof,
        callback: &str,
    ) -> Result<String, OpenIdError> {
        let (headers, body) = self.token_request(file, code, proof, callback);
        let answer = send(file, Method::POST, &self.token, headers, body).await?;
        if answer.status.is_client_error()
            && let Some(refusal) = answer.body.as_deref().and_then(|body| serde_json::from_slice::<Refusal>(body).ok())
        {
            return Err(OpenIdError::refused(&refusal.error, refusal.error_description.as_deref()));
        }
        let tokens: Option<Tokens> = read_body(&answer).and_then(|body| serde_json::from_slice(body).ok());
        let unreadable = || OpenIdError::Invalid(format!("it answered {} without an ID token", answer.status.as_u16()));
        Ok(tokens.ok_or_else(unreadable)?.id_token)
    }

    fn token_request(&self, file: &OpenIdFile, code: &str, proof: &Proof, callback: &str) -> (HeaderMap, Bytes) {
        let mut form = Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code")
            .append_pair("code", code)
            .append_pair("redirect_uri", callback)
            .append_pair("code_verifier", &proof.verifier());
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        match &file.client_secret {
            Some(secret) if !self.puts_secret_in_body => {
                headers.insert(AUTHORIZATION, basic(&file.client_id, &secret.0));
            }
            secret => {
                form.append_pair("client_id", &file.client_id);
                if let Some(secret) = secret {
                    form.append_pair("client_secret", &secret.0);
                }
            }
        }
        (headers, form.finish().into())
    }
}

/// The header that authenticates the head. The standard wants both parts encoded as in a form.
fn basic(client_id: &str, secret: &str) -> HeaderValue {
    let encode = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    let pair = BASE64_STANDARD.encode(format!("{}:{}", encode(client_id), encode(secret)));
    let mut value = HeaderValue::from_str(&format!("Basic {pair}")).expect("base64 is valid in a header");
    value.set_sensitive(true);
    value
}

async fn get<T: DeserializeOwned>(file: &OpenIdFile, uri: &Uri) -> Result<T, OpenIdError> {
    let answer = send(file, Method::GET, uri, HeaderMap::new(), Bytes::new()).await?;
    let unreadable =
        || OpenIdError::Invalid(format!("it answered {} without its description at {uri}", answer.status.as_u16()));
    read_body(&answer).and_then(|body| serde_json::from_slice(body).ok()).ok_or_else(unreadable)
}

/// The body of a successful answer.
fn read_body(answer: &Answer) -> Option<&[u8]> {
    if answer.status == StatusCode::OK { answer.body.as_deref() } else { None }
}

async fn send(
    file: &OpenIdFile,
    method: Method,
    uri: &Uri,
    mut headers: HeaderMap,
    body: Bytes,
) -> Result<Answer, OpenIdError> {
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    let host = outgoing::host(uri).unwrap_or_default();
    let away = |why: String| OpenIdError::Away(format!("{}: {why}", outgoing::host(uri).unwrap_or_default()));
    let call = Call { method, uri, headers, body, ca: file.ca.as_deref(), max_answer_bytes: MAX_ANSWER_BYTES };
    let exchange = async {
        let tcp = TcpStream::connect((host, outgoing::port(uri)))
            .await
            .map_err(|error| away(format!("cannot connect ({error})")))?;
        call.send(tcp).await.map_err(|error| match error {
            CallError::BadUri => OpenIdError::invalid("its address is invalid"),
            CallError::Tls(error) => away(format!("cannot open an encrypted connection ({error})")),
            CallError::Broken => away("it closed the connection without an answer".to_owned()),
            CallError::UnreadableCa | CallError::BadCa => {
                OpenIdError::File("the file `ca` holds no valid certificate in PEM form".to_owned())
            }
        })
    };
    match timeout(TIMEOUT, exchange).await {
        Ok(outcome) => outcome,
        Err(_) => Err(away(format!("no answer within {} s", TIMEOUT.as_secs()))),
    }
}
