//! Tests of the client against a small registry in the same process, which also lies.

use std::sync::{Arc, Mutex};

use hostler_image::Sha256;
use hyper::header::HeaderName;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpListener;

use super::*;

/// An answer of the registry: status, headers, body.
type Answer = (u16, Vec<(&'static str, String)>, Vec<u8>);

/// A function that answers a path, with the value of the header `Authorization`.
type Lie = fn(&str, &str) -> Answer;

/// What the registry got: method, path and authorization.
type Seen = Arc<Mutex<Vec<(String, String, String)>>>;

/// A server that answers each path, with the value of the header `Authorization`, by a function.
#[expect(clippy::disallowed_methods, reason = "a server of the test")]
async fn serve(answer: impl Fn(&str, &str) -> Answer + Send + Sync + 'static) -> (String, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let host = listener.local_addr().expect("bound").to_string();
    let (answer, seen) = (Arc::new(answer), Seen::default());
    let kept = Arc::clone(&seen);
    tokio::spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.expect("open");
            let (answer, seen) = (Arc::clone(&answer), Arc::clone(&kept));
            let service = service_fn(move |request: hyper::Request<Incoming>| {
                let path = request.uri().path_and_query().expect("a path").to_string();
                let login = request.headers().get(AUTHORIZATION).map_or("", |it| it.to_str().expect("text")).to_owned();
                let (status, headers, body) = answer(&path, &login);
                seen.lock().expect("whole").push((request.method().to_string(), path, login));
                async move {
                    let mut response = Response::new(http_body_util::Full::new(bytes::Bytes::from(body)));
                    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
                    for (name, value) in headers {
                        let name: HeaderName = name.parse().expect("a name");
                        response.headers_mut().insert(name, value.parse().expect("a value"));
                    }
                    anyhow::Ok(response)
                }
            });
            tokio::spawn(async move { http1::Builder::new().serve_connection(TokioIo::new(tcp), service).await.ok() });
        }
    });
    (host, seen)
}

/// The image of all tests: configuration, manifest and index.
fn image() -> (String, String, String) {
    let architecture = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    let config = json!({ "architecture": architecture, "rootfs": { "diff_ids": [Sha256::of(b"layer").to_string()] } });
    let config = config.to_string();
    let descriptor = |text: &str| json!({ "digest": Sha256::of(text.as_bytes()).to_string(), "size": text.len() });
    let manifest = json!({ "config": descriptor(&config), "layers": [descriptor("layer")] }).to_string();
    let mut own = descriptor(&manifest);
    own["platform"] = json!({ "os": "linux", "architecture": architecture });
    let mut other = descriptor("other");
    other["platform"] = json!({ "os": "linux", "architecture": "mips" });
    (config, manifest, json!({ "manifests": [other, own.clone(), own] }).to_string())
}

fn digest(text: &str) -> String {
    Sha256::of(text.as_bytes()).to_string()
}

/// Answers as an honest registry.
fn honest(path: &str) -> Answer {
    let (config, manifest, index) = image();
    let name = path.rsplit('/').next().unwrap_or_default();
    let texts = [&config, &manifest, &index, "layer"];
    let found = texts.into_iter().find(|text| digest(text) == name || (name == "1" && *text == index));
    match found {
        Some(text) => (200, Vec::new(), text.as_bytes().to_vec()),
        None => (404, Vec::new(), b"{}".to_vec()),
    }
}

fn order(host: &str, login: Option<Login>, reference: &str) -> Order {
    let want = Want::Description { reference: reference.to_owned(), known: None };
    let login_note = "; log in".to_owned();
    let (plain, listed) = (vec![host.to_owned()], vec![host.to_owned()]);
    Order { host: host.to_owned(), repository: "team/app".to_owned(), plain, listed, login, login_note, want }
}

fn ada() -> Option<Login> {
    Some(Login::Password { user: "ada".to_owned(), password: "secret".to_owned() })
}

async fn describe(order: &Order) -> Result<Description, String> {
    let Want::Description { reference, .. } = &order.want else { panic!("no description") };
    Registry::new(order).description(reference).await.map_err(|error| format!("{error:#}"))
}

async fn layer(host: &str, digest: Sha256, length: u64) -> Result<Vec<u8>, String> {
    let order = order(host, None, "1");
    let mut file = tempfile::tempfile().expect("a temporary file");
    Registry::new(&order).layer(digest, length, &mut file).await.map_err(|error| format!("{error:#}"))?;
    let mut content = Vec::new();
    io::Seek::rewind(&mut file).and_then(|()| io::Read::read_to_end(&mut file, &mut content)).expect("readable");
    Ok(content)
}

#[tokio::test]
async fn index_leads_to_the_image_for_this_machine() {
    let (host, _) = serve(|path, _| honest(path)).await;
    let (config, manifest, index) = image();
    for reference in ["1", &digest(&index), &digest(&manifest)] {
        let found = describe(&order(&host, None, reference)).await.expect("there");
        assert_eq!((found.digest, &found.manifest, &found.config), (digest(&manifest), &manifest, &config));
    }
    assert_eq!(layer(&host, Sha256::of(b"layer"), 5).await.expect("there"), b"layer");
    let missing = describe(&order(&host, None, "2")).await.expect_err("no such tag");
    assert_eq!(missing, format!("{host} has no image team/app:2"));
    let gone = describe(&order("127.0.0.1:1", None, "1")).await.expect_err("nothing listens");
    assert!(gone.contains("cannot reach 127.0.0.1:1: Connection refused"), "{gone}");
}

#[tokio::test]
async fn tokens_and_passwords_go_to_their_servers_only() {
    // A third server, which answers the redirects of layers and of the configuration.
    let (store, at_store) = serve(|path, _| honest(path.split('?').next().unwrap_or_default())).await;
    let (login, at_login) = serve(|path, login| {
        match (path.starts_with("/token?service=the+registry&scope=repository%3Ateam%2Fapp%3Apull"), login) {
            (true, "Basic YWRhOnNlY3JldA==") => (200, Vec::new(), br#"{"token":"for-ada"}"#.to_vec()),
            (true, "") => (200, Vec::new(), br#"{"access_token":"for-all"}"#.to_vec()),
            _ => (403, Vec::new(), Vec::new()),
        }
    })
    .await;
    let others = [store.clone(), login.clone()];
    let order = |host: &str, login, reference: &str| {
        let mut order = order(host, login, reference);
        order.plain.extend(others.clone());
        order
    };
    let demand = format!("Bearer realm=\"http://{login}/token\",service=\"the registry\"");
    let (host, at_host) = serve(move |path, login| match login {
        "Bearer for-ada" if path.contains("/blobs/") => {
            (307, vec![("location", format!("http://{store}{path}?signature=x"))], Vec::new())
        }
        "Bearer for-ada" => honest(path),
        "Bearer for-all" => (403, Vec::new(), Vec::new()),
        _ => (401, vec![("www-authenticate", demand.clone())], Vec::new()),
    })
    .await;
    describe(&order(&host, ada(), "1")).await.expect("ada may read it");
    let logins = |seen: &Seen| seen.lock().expect("whole").drain(..).map(|(_, _, login)| login).collect::<Vec<_>>();
    assert_eq!(logins(&at_login), ["Basic YWRhOnNlY3JldA=="]);
    assert_eq!(logins(&at_store), [""], "the redirect carries no token");
    assert!(logins(&at_host).iter().all(|login| login.is_empty() || login == "Bearer for-ada"));
    // A stranger.
    let refused = describe(&order(&host, None, "1")).await.expect_err("private");
    assert!(refused.ends_with("or does not let you read it (status 403); log in"), "{refused}");
    assert_eq!(logins(&at_login), [""]);

    let basic = |_: &str, login: &str| match login {
        "Basic YWRhOnNlY3JldA==" => (404, Vec::new(), Vec::new()),
        _ => (401, vec![("www-authenticate", "Basic realm=\"x\"".to_owned())], Vec::new()),
    };
    let (host, _) = serve(basic).await;
    assert!(describe(&order(&host, ada(), "1")).await.expect_err("missing").contains("has no image"));
    let refused = describe(&order(&host, None, "1")).await.expect_err("no login");
    assert_eq!(refused, format!("{host} demands a login; log in"));
}

#[tokio::test]
async fn hostile_registry_is_refused_with_the_reason() {
    let lies: [(&str, Lie, &str); 8] = [
        ("another manifest", |_, _| (200, Vec::new(), image().1.into_bytes()), "sent a manifest with the digest"),
        ("a huge manifest", |_, _| (200, Vec::new(), vec![b' '; 5 << 20]), "more than 4194304 bytes"),
        ("no manifest", |_, _| (200, Vec::new(), b"<html>".to_vec()), "sent a manifest with the digest"),
        (
            "endless redirects",
            |path, _| (302, vec![("location", path.to_owned())], Vec::new()),
            "more than 5 redirects",
        ),
        (
            "a strange redirect",
            |_, _| (302, vec![("location", "file:///etc/shadow".into())], Vec::new()),
            "a redirect without a valid address",
        ),
        ("an error", |_, _| (500, Vec::new(), vec![b'x'; 1 << 20]), "answered with status 500"),
        ("too many", |_, _| (429, Vec::new(), Vec::new()), "no more downloads for now"),
        (
            "a strange login",
            |_, _| (401, vec![("www-authenticate", "Digest x".into())], Vec::new()),
            "a kind of login that is not supported",
        ),
    ];
    for (lie, answer, why) in lies {
        let (host, _) = serve(answer).await;
        let reference = digest(&image().2);
        let refused = describe(&order(&host, None, &reference)).await.expect_err(lie);
        assert!(refused.contains(why), "{lie}: {refused}");
    }
    // Content of another digest or size than the manifest says.
    let (host, _) = serve(|_, _| (200, Vec::new(), b"layer".to_vec())).await;
    for (expected, length, why) in [
        (Sha256::of(b"other"), 5, "sent content with the digest"),
        (Sha256::of(b"layer"), 4, "more than 4 bytes"),
        (Sha256::of(b"layer"), 6, "has 5 bytes instead of 6"),
    ] {
        let refused = layer(&host, expected, length).await.expect_err("a lie");
        assert!(refused.contains(why), "{refused}");
    }
    // What it sends may be a document of another server.
    let secret = || r#"{"config":"secret","layers":"secret","manifests":"secret"}"#.as_bytes().to_vec();
    let (host, _) = serve(move |_, _| (200, Vec::new(), secret())).await;
    let refused = describe(&order(&host, None, "1")).await.expect_err("no manifest");
    assert!(refused.contains("is not the description") && !refused.contains("secret"), "{refused}");
}

#[tokio::test]
async fn registry_leads_to_no_server_without_encryption_and_to_none_of_the_node() {
    let (other, at_other) = serve(|path, _| honest(path)).await;
    let target = other.clone();
    let (leading, _) =
        serve(move |path, _| (307, vec![("location", format!("http://{target}{path}"))], Vec::new())).await;
    let demand = format!("Bearer realm=\"http://{other}/token\"");
    let (asking, _) = serve(move |_, _| (401, vec![("www-authenticate", demand.clone())], Vec::new())).await;
    for host in [&leading, &asking] {
        for login in [ada(), Some(Login::Refresh("token".to_owned()))] {
            let refused = describe(&order(host, login, "1")).await.expect_err("no encryption");
            assert_eq!(refused, format!("{host} names {other}, which has no encryption"));
        }
    }
    // A registry on a public network sends the node to servers of the node itself, which no list contains.
    let far = order("registry.example", None, "1");
    let far = Registry::new(&far);
    for text in [format!("https://{other}/token"), "https://localhost/".to_owned()] {
        let address = Address::parse(&text).expect("an address");
        far.allow(&address).expect("it has encryption");
        let request = Request { method: Method::GET, address: &address, headers: HeaderMap::new(), body: Vec::new() };
        let refused = far.send(request).await.expect_err("on the node").to_string();
        assert!(refused.contains("has an address of the node or of a private network"), "{refused}");
    }
    let unlisted = Order { listed: Vec::new(), ..order(&other, None, "1") };
    let refused = describe(&unlisted).await.expect_err("on the node");
    assert!(refused.contains("can list it in `[images] registries`"), "{refused}");
    assert_eq!(at_other.lock().expect("whole").len(), 0);
    // The message does not tell users which ports of other machines are open.
    let closed = Order { host: "no-such-host.invalid".to_owned(), listed: Vec::new(), ..order(&other, None, "1") };
    let refused = describe(&closed).await.expect_err("no such host");
    assert_eq!(refused, "cannot reach no-such-host.invalid, or it has no valid certificate");
}

#[tokio::test]
async fn known_image_is_asked_for_without_its_manifest() {
    let stated = digest(&image().2);
    let (host, seen) = serve(move |path, _| {
        let (status, _, body) = honest(path);
        (status, vec![(DIGEST, stated.clone())], body)
    })
    .await;
    let order = order(&host, None, "1");
    let methods = || seen.lock().expect("whole").drain(..).map(|(method, ..)| method).collect::<Vec<_>>();
    let index = digest(&image().2);
    let said = Registry::new(&order).ask("1", Some(&index)).await.expect("there");
    assert!(matches!(said, Said::Same) && methods() == ["HEAD"], "{said:?}");
    let (busy, _) = serve(|_, _| (429, Vec::new(), Vec::new())).await;
    for host in [busy.as_str(), "127.0.0.1:1"] {
        let order = self::order(host, None, "1");
        let said = Registry::new(&order).ask("1", Some(&index)).await.expect("known");
        assert!(matches!(said, Said::Away(_)), "{said:?}");
        assert!(Registry::new(&order).ask("1", None).await.is_err());
    }
    // A user who may no longer read the image is told so.
    let (closed, _) = serve(|_, _| (403, Vec::new(), Vec::new())).await;
    assert!(Registry::new(&self::order(&closed, None, "1")).ask("1", Some(&index)).await.is_err());
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "a server of the test")]
async fn slow_registry_is_given_up() {
    for (answer, why) in [
        ("", "it does not answer within 300ms"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nx", "fewer than 65536 bytes arrived within 300ms"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let host = listener.local_addr().expect("bound").to_string();
        tokio::spawn(async move {
            let (mut tcp, _) = listener.accept().await.expect("open");
            tokio::io::AsyncWriteExt::write_all(&mut tcp, answer.as_bytes()).await.expect("open");
            // Keeps the connection open.
            std::future::pending::<()>().await;
            drop(tcp);
        });
        let order = order(&host, None, "1");
        let mut registry = Registry { patience: Duration::from_millis(300), ..Registry::new(&order) };
        let late = format!("{:#}", registry.description("1").await.expect_err("too slow"));
        assert!(late.contains(why), "{late}");
    }
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "a server of the test")]
async fn broken_download_is_reported_without_the_libraries_advice() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let host = listener.local_addr().expect("bound").to_string();
    tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.expect("open");
        let _ = tcp.read(&mut [0; 4096]).await;
        let _ = tcp.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nlay").await;
    });
    let why = layer(&host, Sha256::of(b"layer"), 5).await.expect_err("two bytes are missing");
    assert!(why.ends_with("the connection ended early"), "{why}");
}
