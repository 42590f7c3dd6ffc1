//! A small provider of OpenID Connect: real keys, real TLS, and a plan of what it does wrong.

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::rsa::{KeyPair as RsaKeyPair, PublicKeyComponents};
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256};
use ring::{digest, hmac};
use serde_json::{Value, json};
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub(crate) const CLIENT: &str = "hostler:1";
pub(crate) const SECRET: &str = "a secret/with+signs";

/// How tokens are signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    Rs256,
    Es256,
    /// With a key that the provider does not publish, under the name of one that it publishes.
    ForeignKey,
    None,
    /// With the public key as the secret of a MAC.
    Hs256,
}

/// What the provider does next.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) sign: Sign,
    /// Claims to replace.
    pub(crate) claims: Value,
    /// Names of the keys, which change when the provider renews them.
    pub(crate) key_name: String,
    /// Whether a code works any number of times, and with any verifier.
    pub(crate) is_careless: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self { sign: Sign::Rs256, claims: json!({}), key_name: "k1".to_owned(), is_careless: false }
    }
}

/// A running provider at `https://localhost:PORT`.
pub(crate) struct Provider {
    pub(crate) issuer: String,
    /// File with the certificate.
    pub(crate) ca: String,
    shared: Arc<Shared>,
    port: u16,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    issuer: String,
    plan: Mutex<Plan>,
    /// What each code stands for: the parameters of its request.
    codes: Mutex<HashMap<String, HashMap<String, String>>>,
    key_reads: AtomicU32,
    is_over: AtomicBool,
    rsa: RsaKeyPair,
    ec: EcdsaKeyPair,
    foreign: EcdsaKeyPair,
}

impl Provider {
    pub(crate) fn start(directory: &Path) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let [config, ca, key, rsa] =
            ["openssl.cnf", "provider.pem", "provider.key", "rsa.pem"].map(|name| directory.join(name));
        fs::write(&config, "[req]\ndistinguished_name=dn\n[dn]\n").expect("a file can be written");
        openssl(&format!(
            "req -config {} -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj /CN=provider \
             -addext subjectAltName=DNS:localhost -keyout {} -out {}",
            config.display(),
            key.display(),
            ca.display()
        ));
        openssl(&format!("genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out {}", rsa.display()));
        let rsa = PrivateKeyDer::from_pem_file(&rsa).expect("openssl wrote a key");
        let rsa = RsaKeyPair::from_pkcs8(rsa.secret_der()).expect("a valid key");
        let issuer = format!("https://localhost:{port}");
        let shared = Arc::new(Shared {
            issuer: issuer.clone(),
            plan: Mutex::default(),
            codes: Mutex::default(),
            key_reads: AtomicU32::new(0),
            is_over: AtomicBool::new(false),
            rsa,
            ec: ec_key(),
            foreign: ec_key(),
        });
        let tls = Arc::new(
            rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("the usual versions")
                .with_no_client_auth()
                .with_single_cert(
                    vec![CertificateDer::from_pem_file(&ca).expect("a certificate")],
                    PrivateKeyDer::from_pem_file(&key).expect("a key"),
                )
                .expect("a usable certificate"),
        );
        let thread = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                for tcp in listener.incoming() {
                    if shared.is_over.load(Ordering::Acquire) {
                        return;
                    }
                    // A client may leave at any time.
                    let _ = tcp.and_then(|tcp| shared.serve(tcp, &tls));
                }
            }
        });
        Self { issuer, ca: ca.display().to_string(), shared, port, thread: Some(thread) }
    }

    pub(crate) fn plan(&self, plan: Plan) {
        *self.shared.plan.lock().expect("no thread panicked") = plan;
    }

    /// How often the keys were read.
    pub(crate) fn key_reads(&self) -> u32 {
        self.shared.key_reads.load(Ordering::Acquire)
    }

    /// Stops to answer.
    pub(crate) fn stop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.shared.is_over.store(true, Ordering::Release);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        let _ = thread.join();
    }

    /// Lets a person sign in who follows this link. Returns where the browser goes next.
    pub(crate) fn approve(&self, link: &str) -> String {
        let query = link.strip_prefix(&format!("{}/authorize?", self.issuer)).unwrap_or_else(|| panic!("{link}"));
        let asked = fields(query);
        for (name, value) in
            [("response_type", "code"), ("client_id", CLIENT), ("scope", "openid"), ("code_challenge_method", "S256")]
        {
            assert_eq!(asked.get(name).map(String::as_str), Some(value), "{name} in {link}");
        }
        let mut codes = self.shared.codes.lock().expect("no thread panicked");
        let code = format!("code-{}", codes.len());
        let next = format!("{}?code={code}&state={}", asked["redirect_uri"], asked["state"]);
        codes.insert(code, asked);
        next
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn serve(&self, mut tcp: TcpStream, tls: &Arc<rustls::ServerConfig>) -> std::io::Result<()> {
        tcp.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut session = rustls::ServerConnection::new(Arc::clone(tls)).map_err(std::io::Error::other)?;
        let mut stream = rustls::Stream::new(&mut session, &mut tcp);
        let mut request = Vec::new();
        let (head, body) = loop {
            let mut part = [0; 4096];
            let count = stream.read(&mut part)?;
            request.extend_from_slice(&part[..count]);
            let text = String::from_utf8_lossy(&request).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n")
                && body.len() >= header(head, "content-length").map_or(0, |length| length.parse().unwrap_or(0))
            {
                break (head.to_owned(), body.to_owned());
            }
            if count == 0 {
                return Ok(());
            }
        };
        let path = head.split(' ').nth(1).unwrap_or_default();
        let (status, answer) = match path {
            "/.well-known/openid-configuration" => (200, self.description()),
            "/keys" => {
                self.key_reads.fetch_add(1, Ordering::AcqRel);
                (200, self.keys())
            }
            "/token" => match self.token(&head, &body) {
                Ok(answer) => (200, answer),
                Err(why) => (400, json!({ "error": "invalid_grant", "error_description": why })),
            },
            _ => (404, json!({})),
        };
        let answer = answer.to_string();
        write!(stream, "HTTP/1.1 {status} x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{answer}", answer.len())?;
        session.send_close_notify();
        session.complete_io(&mut tcp).map(drop)
    }

    fn description(&self) -> Value {
        let at = |path: &str| format!("{}{path}", self.issuer);
        json!({ "issuer": self.issuer, "authorization_endpoint": at("/authorize"), "token_endpoint": at("/token"),
            "jwks_uri": at("/keys"), "response_types_supported": ["code"] })
    }

    fn keys(&self) -> Value {
        let rsa = PublicKeyComponents::<Vec<u8>>::from(self.rsa.public());
        let point = self.ec.public_key().as_ref();
        let name = &self.plan.lock().expect("no thread panicked").key_name;
        json!({ "keys": [
            { "kty": "RSA", "use": "sig", "kid": format!("{name}-rsa"), "n": encode(&rsa.n), "e": encode(&rsa.e) },
            { "kty": "EC", "crv": "P-256", "kid": format!("{name}-ec"), "x": encode(&point[1..33]), "y": encode(&point[33..]) },
        ] })
    }

    fn token(&self, head: &str, body: &str) -> Result<Value, String> {
        let form = fields(body);
        let plan = self.plan.lock().expect("no thread panicked").clone();
        let encoded = |text: &str| text.replace(':', "%3A").replace('/', "%2F").replace('+', "%2B").replace(' ', "+");
        let pair = BASE64_STANDARD.encode(format!("{}:{}", encoded(CLIENT), encoded(SECRET)));
        if header(head, "authorization") != Some(&format!("Basic {pair}")) {
            return Err("another client".to_owned());
        }
        let mut codes = self.codes.lock().expect("no thread panicked");
        let code = form.get("code").cloned().unwrap_or_default();
        let asked = codes.get(&code).cloned().ok_or("unknown code")?;
        if !plan.is_careless {
            // An empty entry keeps the number of codes.
            if codes.insert(code, HashMap::new()).is_some_and(|asked| asked.is_empty()) {
                return Err("the code was used before".to_owned());
            }
            let verifier = form.get("code_verifier").ok_or("no verifier")?;
            if encode(digest::digest(&digest::SHA256, verifier.as_bytes()).as_ref()) != asked["code_challenge"] {
                return Err("wrong verifier".to_owned());
            }
        }
        if form.get("redirect_uri") != asked.get("redirect_uri") || form["grant_type"] != "authorization_code" {
            return Err("another redirect_uri".to_owned());
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        let mut claims = json!({ "iss": self.issuer, "sub": "ada-1", "aud": CLIENT, "nonce": asked["nonce"], "iat": now,
            "exp": now + 300, "email": "root@example.org", "preferred_username": "root" });
        for (name, value) in plan.claims.as_object().expect("an object") {
            claims[name] = value.clone();
        }
        Ok(json!({ "access_token": "x", "token_type": "Bearer", "id_token": self.sign(&plan, &claims) }))
    }

    fn sign(&self, plan: &Plan, claims: &Value) -> String {
        let (algorithm, key) = match plan.sign {
            Sign::Rs256 => ("RS256", "rsa"),
            Sign::Es256 | Sign::ForeignKey => ("ES256", "ec"),
            Sign::None => ("none", "rsa"),
            Sign::Hs256 => ("HS256", "rsa"),
        };
        let header = json!({ "alg": algorithm, "kid": format!("{}-{key}", plan.key_name) });
        let text = format!("{}.{}", encode(header.to_string().as_bytes()), encode(claims.to_string().as_bytes()));
        let (bytes, random) = (text.as_bytes(), SystemRandom::new());
        let signature = match plan.sign {
            Sign::Rs256 => {
                let mut signature = vec![0; self.rsa.public().modulus_len()];
                self.rsa.sign(&RSA_PKCS1_SHA256, &random, bytes, &mut signature).expect("signed");
                signature
            }
            Sign::Es256 => self.ec.sign(&random, bytes).expect("signed").as_ref().to_vec(),
            Sign::ForeignKey => self.foreign.sign(&random, bytes).expect("signed").as_ref().to_vec(),
            Sign::None => Vec::new(),
            Sign::Hs256 => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, self.rsa.public().as_ref());
                hmac::sign(&key, bytes).as_ref().to_vec()
            }
        };
        format!("{text}.{}", encode(&signature))
    }
}

fn ec_key() -> EcdsaKeyPair {
    let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
    let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key can be made");
    EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).expect("a valid key")
}

fn openssl(arguments: &str) {
    let made = Command::new("openssl").args(arguments.split_whitespace()).output().expect("openssl is installed");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

fn encode(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (own, value) = line.split_once(':')?;
        own.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// The fields of a form or query.
pub(crate) fn fields(text: &str) -> HashMap<String, String> {
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decode(name), decode(value))).collect()
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next(), rest.next()].map(|digit| char::from(digit.expect("two digits")));
                u8::from_str_radix(&String::from_iter(digits), 16).expect("two digits")
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).expect("text")
}
