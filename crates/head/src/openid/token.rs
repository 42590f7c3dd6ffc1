//! ID tokens of OpenID Connect: their signature and their claims. Pure.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::signature::{ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;

use super::file::is_subject;

/// Accepted difference between the clocks of the head and the provider, in seconds.
const LEEWAY_S: i64 = 60;

/// The provider's public keys for signatures.
#[derive(Debug, Clone, Default)]
pub(super) struct Keys(Vec<Key>);

#[derive(Debug, Clone)]
struct Key {
    id: Option<String>,
    numbers: Numbers,
}

/// The numbers of a public key.
#[derive(Debug, Clone)]
enum Numbers {
    /// RSA: modulus and exponent.
    Rsa { n: Vec<u8>, e: Vec<u8> },
    /// A point of the curve P-256, uncompressed.
    P256(Vec<u8>),
}

/// What a token must say.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected<'a> {
    pub(super) issuer: &'a str,
    pub(super) client_id: &'a str,
    pub(super) nonce: &'a str,
    /// The head's wall clock, in seconds since 1970.
    pub(super) now_s: i64,
}

/// Why a token is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum TokenError {
    #[error("it is malformed")]
    Malformed,
    #[error("it is signed with {0:?}; the head accepts RS256 and ES256")]
    Algorithm(String),
    #[error("the provider does not publish the key of its signature")]
    UnknownKey,
    #[error("its signature is wrong")]
    Signature,
    #[error("another provider issued it")]
    Issuer,
    #[error("it is for another application")]
    Audience,
    #[error("it does not belong to this sign-in")]
    Nonce,
    /// Times in seconds since 1970.
    #[error("it is not valid at this time")]
    Time { issued_s: i64, expires_s: i64, now_s: i64 },
}

/// JSON Web Key Set (RFC 7517).
#[derive(Deserialize)]
struct KeySet {
    keys: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct KeyText {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

/// Header of a JSON Web Signature (RFC 7515).
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// Extensions that the reader must understand. The head understands none.
    crit: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: Audience,
    azp: Option<String>,
    /// Times may have fractions.
    exp: f64,
    iat: f64,
    nonce: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

impl Keys {
    /// Parses a key set. Skips keys that the head cannot use, such as keys for encryption.
    pub(super) fn parse(json: &[u8]) -> Option<Self> {
        let set: KeySet = serde_json::from_slice(json).ok()?;
        Some(Self(set.keys.into_iter().filter_map(Key::read).collect()))
    }
}

impl Key {
    fn read(json: serde_json::Value) -> Option<Self> {
        let text: KeyText = serde_json::from_value(json).ok()?;
        if text.usage.is_some_and(|usage| usage != "sig") {
            return None;
        }
        let numbers = match (text.kty.as_str(), text.crv.as_deref()) {
            ("RSA", _) => Numbers::Rsa { n: number(text.n.as_deref()?)?, e: number(text.e.as_deref()?)? },
            ("EC", Some("P-256")) => {
                let (x, y) = (decode(text.x.as_deref()?)?, decode(text.y.as_deref()?)?);
                if x.len() != 32 || y.len() != 32 {
                    return None;
                }
                Numbers::P256([&[4], &x[..], &y[..]].concat())
            }
            _ => return None,
        };
        let is_for = text.alg.is_none_or(|alg| alg == numbers.algorithm());
        is_for.then_some(Self { id: text.kid, numbers })
    }
}

impl Numbers {
    /// The one algorithm for which the head uses a key. The token does not choose it.
    const fn algorithm(&self) -> &'static str {
        match self {
            Self::Rsa { .. } => "RS256",
            Self::P256(_) => "ES256",
        }
    }

    fn verifies(&self, text: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Rsa { n, e } => {
                RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, text, signature).is_ok()
            }
            Self::P256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(text, signature).is_ok()
            }
        }
    }
}

/// Verifies an ID token, and returns its subject.
pub(super) fn verify(token: &str, keys: &Keys, expected: Expected<'_>) -> Result<String, TokenError> {
    let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
    let (header, claims) = signed.split_once('.').ok_or(TokenError::Malformed)?;
    let header: Header = read(header)?;
    if !matches!(header.alg.as_str(), "RS256" | "ES256") {
        let algorithm = header.alg.chars().take(20).collect();
        return Err(TokenError::Algorithm(algorithm));
    }
    if header.crit.is_some() {
        return Err(TokenError::Malformed);
    }
    let signature = decode(signature).ok_or(TokenError::Malformed)?;
    let fits = |key: &&Key| {
        key.numbers.algorithm() == header.alg && (header.kid.is_none() || key.id.is_none() || key.id == header.kid)
    };
    let mut fitting = keys.0.iter().filter(fits).peekable();
    if fitting.peek().is_none() {
        return Err(TokenError::UnknownKey);
    }
    if !fitting.any(|key| key.numbers.verifies(signed.as_bytes(), &signature)) {
        return Err(TokenError::Signature);
    }
    // The provider made the claims, so they may be read.
    check(read(claims)?, expected)
}

fn check(claims: Claims, expected: Expected<'_>) -> Result<String, TokenError> {
    if claims.iss != expected.issuer {
        return Err(TokenError::Issuer);
    }
    let (is_for_us, is_only) = match &claims.aud {
        Audience::One(one) => (one == expected.client_id, true),
        Audience::Several(all) => (all.iter().any(|one| one == expected.client_id), all.len() == 1),
    };
    let is_ours = match &claims.azp {
        Some(party) => party == expected.client_id,
        None => is_only,
    };
    if !is_for_us || !is_ours {
        return Err(TokenError::Audience);
    }
    if claims.nonce.as_deref() != Some(expected.nonce) {
        return Err(TokenError::Nonce);
    }
    // Conversion saturates, so every number of JSON is fine.
    let (issued_s, expires_s, now_s) = (claims.iat as i64, claims.exp as i64, expected.now_s);
    if now_s >= expires_s.saturating_add(LEEWAY_S) || issued_s > now_s.saturating_add(LEEWAY_S) {
        return Err(TokenError::Time { issued_s, expires_s, now_s });
    }
    if !is_subject(&claims.sub) {
        return Err(TokenError::Malformed);
    }
    Ok(claims.sub)
}

/// Reads JSON in base64.
fn read<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, TokenError> {
    let json = decode(text).ok_or(TokenError::Malformed)?;
    serde_json::from_slice(&json).map_err(|_| TokenError::Malformed)
}

fn decode(text: &str) -> Option<Vec<u8>> {
    BASE64_URL_SAFE_NO_PAD.decode(text).ok()
}

/// A number without leading zeros, which verification refuses.
fn number(text: &str) -> Option<Vec<u8>> {
    let bytes = decode(text)?;
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    Some(bytes[zeros..].to_vec())
}

#[cfg(test)]
mod tests {
    use ring::hmac;
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
    use serde_json::{Value, json};

    use super::*;

    const NOW: i64 = 1_800_000_000;
    const EXPECTED: Expected<'_> =
        Expected { issuer: "https://login.example", client_id: "hostler", nonce: "n", now_s: NOW };

    struct Signer(EcdsaKeyPair);

    impl Signer {
        fn new() -> Self {
            let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
            let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key can be made");
            Self(EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).expect("a valid key"))
        }

        fn jwk(&self, more: &Value) -> Value {
            let point = self.0.public_key().as_ref();
            let mut key = json!({ "kty": "EC", "crv": "P-256", "kid": "k1", "use": "sig", "alg": "ES256",
                "x": BASE64_URL_SAFE_NO_PAD.encode(&point[1..33]), "y": BASE64_URL_SAFE_NO_PAD.encode(&point[33..]) });
            merge(&mut key, more);
            key
        }

        fn token(&self, header: &Value, claims: &Value) -> String {
            let text = unsigned(header, claims);
            let signature = self.0.sign(&SystemRandom::new(), text.as_bytes()).expect("signed");
            format!("{text}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
        }
    }

    /// Adds or replaces fields; null removes one.
    fn merge(object: &mut Value, more: &Value) {
        for (name, value) in more.as_object().expect("an object") {
            object[name] = value.clone();
        }
        object.as_object_mut().expect("an object").retain(|_, value| !value.is_null());
    }

    fn unsigned(header: &Value, claims: &Value) -> String {
        let mut all = json!({ "iss": EXPECTED.issuer, "sub": "ada-1", "aud": "hostler", "exp": NOW + 300, "iat": NOW,
            "nonce": "n" });
        merge(&mut all, claims);
        let mut head = json!({ "alg": "ES256", "kid": "k1", "typ": "JWT" });
        merge(&mut head, header);
        let [head, all] = [head, all].map(|json| BASE64_URL_SAFE_NO_PAD.encode(json.to_string()));
        format!("{head}.{all}")
    }

    fn keys(keys: &[Value]) -> Keys {
        Keys::parse(json!({ "keys": keys }).to_string().as_bytes()).expect("a key set")
    }

    #[test]
    fn claims_are_checked() {
        let signer = Signer::new();
        let keys = keys(&[json!({ "kty": "oct", "k": "AAAA" }), json!(1), signer.jwk(&json!({}))]);
        let of = |claims: Value| verify(&signer.token(&json!({}), &claims), &keys, EXPECTED);
        for fine in [
            json!({}),
            json!({ "aud": ["hostler"] }),
            json!({ "aud": ["other", "hostler"], "azp": "hostler" }),
            json!({ "exp": NOW - 59 }),
            json!({ "iat": NOW + 60 }),
            json!({ "exp": 1_800_000_300.5 }),
        ] {
            assert_eq!(of(fine.clone()), Ok("ada-1".to_owned()), "{fine}");
        }
        let time = |issued_s, expires_s| TokenError::Time { issued_s, expires_s, now_s: NOW };
        for (claims, error) in [
            (json!({ "iss": "https://login.example/" }), TokenError::Issuer),
            (json!({ "aud": "other" }), TokenError::Audience),
            (json!({ "aud": [] }), TokenError::Audience),
            (json!({ "aud": ["other", "hostler"] }), TokenError::Audience),
            (json!({ "aud": ["other", "hostler"], "azp": "other" }), TokenError::Audience),
            (json!({ "azp": "other" }), TokenError::Audience),
            (json!({ "nonce": "other" }), TokenError::Nonce),
            (json!({ "nonce": null }), TokenError::Nonce),
            (json!({ "exp": NOW - 60 }), time(NOW, NOW - 60)),
            (json!({ "iat": NOW + 61 }), time(NOW + 61, NOW + 300)),
            (json!({ "exp": -1e300 }), time(NOW, i64::MIN)),
            (json!({ "exp": null }), TokenError::Malformed),
            (json!({ "iat": null }), TokenError::Malformed),
            (json!({ "sub": null }), TokenError::Malformed),
            (json!({ "sub": "" }), TokenError::Malformed),
            (json!({ "sub": "a\nb" }), TokenError::Malformed),
            (json!({ "sub": "a".repeat(256) }), TokenError::Malformed),
        ] {
            assert_eq!(of(claims.clone()), Err(error), "{claims}");
        }
    }

    #[test]
    fn only_the_providers_signature_counts() {
        let (signer, other) = (Signer::new(), Signer::new());
        let own = [signer.jwk(&json!({}))];
        let with = |token: &str, own: &[Value]| verify(token, &keys(own), EXPECTED);
        let token = signer.token(&json!({}), &json!({}));
        assert!(with(&token, &own).is_ok());
        assert!(with(&signer.token(&json!({ "kid": null }), &json!({})), &own).is_ok());
        assert_eq!(with(&other.token(&json!({}), &json!({})), &own), Err(TokenError::Signature));
        assert_eq!(with(&signer.token(&json!({ "kid": "k2" }), &json!({})), &own), Err(TokenError::UnknownKey));
        assert_eq!(with(&signer.token(&json!({ "crit": ["b64"] }), &json!({})), &own), Err(TokenError::Malformed));
        // A key that is not for signatures, or for another algorithm.
        for more in
            [json!({ "use": "enc" }), json!({ "alg": "ES384" }), json!({ "crv": "P-384" }), json!({ "x": "AA" })]
        {
            assert_eq!(with(&token, &[signer.jwk(&more)]), Err(TokenError::UnknownKey), "{more}");
        }
        // The token chooses no weaker check.
        let none = unsigned(&json!({ "alg": "none" }), &json!({}));
        for alg in ["none", "None", "HS256", "ES256K"] {
            let header = json!({ "alg": alg });
            let error = Err(TokenError::Algorithm(alg.to_owned()));
            assert_eq!(with(&signer.token(&header, &json!({})), &own), error, "{alg}");
        }
        assert_eq!(with(&format!("{none}."), &own), Err(TokenError::Algorithm("none".to_owned())));
        let point = signer.0.public_key().as_ref();
        let text = unsigned(&json!({ "alg": "HS256" }), &json!({}));
        let forged = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, point), text.as_bytes());
        let forged = format!("{text}.{}", BASE64_URL_SAFE_NO_PAD.encode(forged));
        assert_eq!(with(&forged, &own), Err(TokenError::Algorithm("HS256".to_owned())));
        assert_eq!(with(&signer.token(&json!({ "alg": "RS256" }), &json!({})), &own), Err(TokenError::UnknownKey));
        // Changed or damaged text.
        let (signed, signature) = token.rsplit_once('.').expect("three parts");
        let changed = unsigned(&json!({}), &json!({ "sub": "root" }));
        assert_eq!(with(&format!("{changed}.{signature}"), &own), Err(TokenError::Signature));
        assert_eq!(with(&format!("{signed}."), &own), Err(TokenError::Signature));
        for damaged in ["", ".", "..", "a.b.c", signed, &format!("{token}="), &format!("{token}.x")] {
            assert_eq!(with(damaged, &own), Err(TokenError::Malformed), "{damaged}");
        }
    }
}
