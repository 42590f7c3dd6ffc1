//! WebSockets of the API.

use hostler_proto::api::{API_VERSION, BASE, VERSION_HEADER};
use tokio_tungstenite::tungstenite::Error as WebSocketError;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Response;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::http::header::AUTHORIZATION;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use crate::connection::{interrupted, refused};
use crate::{ClientError, Endpoint, Stream};

/// Opens a WebSocket. `path` starts with `/` and is below [`BASE`].
pub(crate) async fn open(
    endpoint: &Endpoint,
    path: &str,
    config: Option<WebSocketConfig>,
) -> Result<(WebSocketStream<Stream>, Response), ClientError> {
    let stream = endpoint.connect().await?;
    let mut request = format!("ws://hostler{BASE}{path}")
        .into_client_request()
        .expect("paths are made of ids, numbers and escaped text, which are valid in a URI");
    request.headers_mut().insert(VERSION_HEADER, HeaderValue::from(API_VERSION));
    if let Some(value) = endpoint.authorization() {
        request.headers_mut().insert(AUTHORIZATION, value);
    }
    match client_async_with_config(request, stream, config).await {
        Ok(opened) => Ok(opened),
        Err(WebSocketError::Http(response)) => {
            let body = response.body().as_deref().unwrap_or_default();
            Err(refused(endpoint, response.status().as_u16(), body))
        }
        Err(error) => Err(interrupted(endpoint, error.to_string())),
    }
}
