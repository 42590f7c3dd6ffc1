//! Login of users on machines outside the cluster. A successful login yields a token.
//!
//! With an SSH key: the head issues a random challenge. The client signs it together with the cluster's fingerprint and
//! the user's name, in the SSH namespace of Hostler logins. The head checks that the key belongs to the user.
//!
//! With a login code: an admin creates the code, which can be used once.
//!
//! A challenge is valid for a minute and a code for a day, on the monotonic clock. Both end with the head's process. The
//! head keeps no open challenges, so a flood of requests for challenges takes no memory and uses up nothing of others. The
//! state keeps the hashes of tokens.
//!
//! A failed login does not reveal whether the user exists: the signature is checked before the lookup, and all failures
//! have the same message. [`crate::failures`] counts them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hostler_model::{Digest, Timestamp, UserName};
use hostler_proto::users::LOGIN_NAMESPACE;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA512, RsaPublicKeyComponents};
use ssh_key::public::KeyData;
use ssh_key::{Algorithm, EcdsaCurve, HashAlg, PublicKey, SshSig};

use crate::blobs::name_of;
use crate::names::random_name;
use crate::seal::Seal;

const CHALLENGE_TTL: Duration = Duration::from_secs(60);

const CODE_TTL: Duration = Duration::from_secs(24 * 3600);

/// Validity of a link to the dashboard.
pub(crate) const LINK_TTL: Duration = Duration::from_secs(60);

/// Maximum number of open login codes. At the maximum, a new code replaces the oldest.
const MAX_CODES: usize = 10_000;

/// Maximum length of a key line, in bytes.
const MAX_KEY_LEN: usize = 8 << 10;

/// Maximum length of a signature, in bytes. It holds the longest key of RSA and its signature.
const MAX_SIGNATURE_LEN: usize = 16 << 10;

/// Answered challenges and open codes.
pub(crate) struct Logins {
    /// Makes challenges.
    seal: Seal,
    /// When a valid signature answered a challenge. Only users can add entries.
    answered: Mutex<HashMap<Digest, Instant>>,
    /// Login codes, by the hash of their secret.
    codes: Mutex<HashMap<Digest, Code>>,
}

struct Code {
    user: UserName,
    made: Instant,
    life: Duration,
    until: Option<Timestamp>,
}

impl Code {
    fn is_valid(&self) -> bool {
        self.made.elapsed() < self.life
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LoginError {
    #[error("this challenge is unknown, was answered already or is older than a minute")]
    BadChallenge,
    /// The message does not reveal whether the user or the key is unknown.
    #[error("the signature does not match any key that the cluster knows for this user")]
    BadKey,
    #[error("this login code is unknown, was used already or has expired")]
    BadCode,
    #[error("openid.toml names a user whom the cluster does not have")]
    NoSuchUser,
    #[error(
        "the login failed, after too many failed logins from this address; the head gives no reason for another {0} seconds"
    )]
    TooMany(u64),
}

impl Logins {
    pub(crate) fn new() -> Self {
        Self { seal: Seal::new(), answered: Mutex::default(), codes: Mutex::default() }
    }

    /// Creates a challenge to sign.
    pub(crate) fn challenge(&self) -> String {
        Digest(self.seal.make()).to_string()
    }

    /// Uses up a challenge if `check` accepts its signature.
    ///
    /// # Errors
    /// The challenge is unknown, used or expired, or `check` failed.
    pub(crate) fn answer(&self, nonce: &str, check: impl FnOnce() -> Result<(), LoginError>) -> Result<(), LoginError> {
        let nonce = nonce.parse::<Digest>().ok().filter(|nonce| self.seal.is_younger(&nonce.0, CHALLENGE_TTL));
        let nonce = nonce.ok_or(LoginError::BadChallenge)?;
        check()?;
        let mut answered = lock(&self.answered);
        answered.retain(|_, at| at.elapsed() < CHALLENGE_TTL);
        match answered.insert(nonce, Instant::now()) {
            None => Ok(()),
            Some(_) => Err(LoginError::BadChallenge),
        }
    }

    /// Creates a login code for `user` and returns its secret.
    pub(crate) fn invite(&self, user: UserName) -> String {
        self.add(user, CODE_TTL, None)
    }

    /// Creates a code for a link to the dashboard and returns its secret. The session that it opens ends at `until` at
    /// the latest.
    pub(crate) fn link(&self, user: UserName, until: Option<Timestamp>) -> String {
        self.add(user, LINK_TTL, until)
    }

    fn add(&self, user: UserName, life: Duration, until: Option<Timestamp>) -> String {
        let mut codes = lock(&self.codes);
        codes.retain(|_, code| code.is_valid());
        if codes.len() >= MAX_CODES
            && let Some(oldest) = codes.iter().min_by_key(|(_, code)| code.made).map(|(key, _)| *key)
        {
            codes.remove(&oldest);
        }
        let secret = secret();
        codes.insert(name_of(secret.as_bytes()), Code { user, made: Instant::now(), life, until });
        secret
    }

    /// Uses up a login code. Returns its user, and when the session must end at the latest.
    ///
    /// # Errors
    /// The code is unknown, used or expired.
    pub(crate) fn redeem(&self, secret: &str) -> Result<(UserName, Option<Timestamp>), LoginError> {
        let code = lock(&self.codes).remove(&name_of(secret.as_bytes()));
        code.filter(Code::is_valid).map(|code| (code.user, code.until)).ok_or(LoginError::BadCode)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// 256 random bits in hexadecimal.
pub(crate) fn secret() -> String {
    format!("{}{}", random_name(), random_name())
}

/// Parses a public key and returns its normal form.
///
/// # Errors
/// The problem, as the rest of a sentence.
pub(crate) fn normal_key(line: &str) -> Result<String, String> {
    if line.len() > MAX_KEY_LEN || line.contains(|c: char| c.is_control()) {
        return Err("is not one line of an authorized_keys file".to_owned());
    }
    let key = PublicKey::from_openssh(line.trim()).map_err(|error| format!("is not an SSH public key ({error})"))?;
    match key.algorithm() {
        Algorithm::Ed25519 | Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 } => {}
        Algorithm::Rsa { .. } if rsa_bits(key.key_data()) >= 2048 => {}
        Algorithm::Rsa { .. } => return Err("is an RSA key of less than 2048 bits".to_owned()),
        other => return Err(format!("is of type {other}; use ed25519, ecdsa with nistp256, or rsa")),
    }
    key.to_openssh().map_err(|error| format!("cannot be encoded ({error})"))
}

fn rsa_bits(key: &KeyData) -> usize {
    let modulus = key.rsa().and_then(|key| key.n.as_positive_bytes());
    modulus.map_or(0, |bytes| bytes.len() * 8 - bytes.first().map_or(0, |first| first.leading_zeros() as usize))
}

/// Checks that one of `keys` made the `signature` of `text`.
///
/// # Errors
/// [`LoginError::BadKey`] for every problem.
pub(crate) fn check_signature(signature: &str, text: &str, keys: &[String]) -> Result<(), LoginError> {
    let signature = Some(signature).filter(|signature| signature.len() <= MAX_SIGNATURE_LEN);
    let signature = signature.and_then(|it| SshSig::from_pem(it).ok()).ok_or(LoginError::BadKey)?;
    // Verifies the signature before the lookup of the key, so that a valid signature of an unknown key takes as long as
    // an invalid one.
    let key = signer(&signature, text.as_bytes()).ok_or(LoginError::BadKey)?;
    let is_key = |line: &String| PublicKey::from_openssh(line).is_ok_and(|known| known.key_data() == &key);
    if keys.iter().any(is_key) { Ok(()) } else { Err(LoginError::BadKey) }
}

/// The key that made a signature of `text`, if the signature is valid.
fn signer(signature: &SshSig, text: &[u8]) -> Option<KeyData> {
    if signature.namespace() != LOGIN_NAMESPACE {
        return None;
    }
    let key = signature.public_key().clone();
    let is_good = match key.rsa() {
        Some(rsa) => {
            // ring verifies RSA signatures, because the `rsa` crate has an open advisory about timing.
            let parameters = match signature.signature().algorithm() {
                Algorithm::Rsa { hash: Some(HashAlg::Sha512) } => &RSA_PKCS1_2048_8192_SHA512,
                Algorithm::Rsa { hash: Some(HashAlg::Sha256) } => &RSA_PKCS1_2048_8192_SHA256,
                _ => return None,
            };
            let signed = SshSig::signed_data(LOGIN_NAMESPACE, signature.hash_alg(), text).ok()?;
            let components = RsaPublicKeyComponents { n: rsa.n.as_positive_bytes()?, e: rsa.e.as_positive_bytes()? };
            components.verify(parameters, &signed, signature.signature_bytes()).is_ok()
        }
        None => PublicKey::new(key.clone(), "").verify(LOGIN_NAMESPACE, text, signature).is_ok(),
    };
    is_good.then_some(key)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    /// Creates a key with `ssh-keygen`. Returns its path and its public line.
    fn key(directory: &std::path::Path, kind: &[&str]) -> (std::path::PathBuf, String) {
        let path = directory.join(kind.concat().replace('-', ""));
        let made =
            Command::new("ssh-keygen").args(["-q", "-N", "", "-C", "a comment", "-f"]).arg(&path).args(kind).status();
        assert!(made.expect("ssh-keygen is installed").success());
        let public =
            std::fs::read_to_string(path.with_added_extension("pub")).expect("ssh-keygen wrote the public key");
        (path, public.trim().to_owned())
    }

    fn sign(key: &std::path::Path, namespace: &str, text: &str) -> String {
        let mut child = Command::new("ssh-keygen")
            .args(["-Y", "sign", "-q", "-n", namespace, "-f"])
            .arg(key)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("ssh-keygen is installed");
        child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("the peer reads");
        let output = child.wait_with_output().expect("ssh-keygen ends");
        assert!(output.status.success());
        String::from_utf8(output.stdout).expect("text")
    }

    #[test]
    fn challenge_is_answered_once_with_a_valid_signature() {
        let logins = Logins::new();
        let nonce = logins.challenge();
        let bad = || logins.answer(&nonce, || Err(LoginError::BadKey));
        assert_eq!((bad(), bad()), (Err(LoginError::BadKey), Err(LoginError::BadKey)), "a wrong one uses up nothing");
        assert_eq!(logins.answer(&nonce, || Ok(())), Ok(()));
        assert_eq!(logins.answer(&nonce, || Ok(())), Err(LoginError::BadChallenge));
        // The check is not even asked about a challenge that the head has not made.
        for nonce in ["", "guess", &"0a".repeat(32), &Logins::new().challenge()] {
            assert_eq!(logins.answer(nonce, || panic!("unknown")), Err(LoginError::BadChallenge));
        }
        assert_eq!(logins.answer(&logins.challenge(), || Ok(())), Ok(()));
    }

    #[test]
    fn signatures_of_all_supported_key_types_are_verified() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (_, other) = key(directory.path(), &["-t", "ed25519", "-Z", "aes256-ctr"]);
        for kind in [&["-t", "ed25519"][..], &["-t", "ecdsa", "-b", "256"], &["-t", "rsa", "-b", "2048"]] {
            let (path, public) = key(directory.path(), kind);
            let known = vec![other.clone(), normal_key(&public).expect("a supported key")];
            let signature = sign(&path, LOGIN_NAMESPACE, "text");
            assert_eq!(check_signature(&signature, "text", &known), Ok(()), "{kind:?}");
            let bad = Err(LoginError::BadKey);
            assert_eq!(check_signature(&signature, "other text", &known), bad, "{kind:?}");
            assert_eq!(check_signature(&signature, "text", &known[..1]), bad, "{kind:?}: key of another user");
            assert_eq!(check_signature(&signature, "text", &[]), bad, "{kind:?}");
            assert_eq!(
                check_signature(&sign(&path, "file", "text"), "text", &known),
                bad,
                "{kind:?}: namespace of files"
            );
        }
        for rubbish in ["", "-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----\n", "\0"] {
            assert_eq!(check_signature(rubbish, "text", std::slice::from_ref(&other)), Err(LoginError::BadKey));
        }
    }

    #[test]
    fn unsupported_keys_are_rejected_with_a_reason() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (_, p384) = key(directory.path(), &["-t", "ecdsa", "-b", "384"]);
        assert!(normal_key(&p384).expect_err("another curve").contains("ecdsa-sha2-nistp384"));
        let (_, short) = key(directory.path(), &["-t", "rsa", "-b", "1024"]);
        assert!(normal_key(&short).expect_err("too short").contains("2048"));
        for line in ["", "ssh-ed25519", "ssh-ed25519 AAAA", "command=\"sh\" ssh-ed25519 AAAA", "a\nb"] {
            assert!(normal_key(line).is_err(), "{line}");
        }
    }

    #[test]
    fn code_can_be_used_once_until_it_expires() {
        let logins = Logins::new();
        let ada: UserName = "ada".parse().expect("a valid name");
        let code = logins.invite(ada.clone());
        assert_eq!(logins.redeem("guess"), Err(LoginError::BadCode));
        assert_eq!([logins.redeem(&code), logins.redeem(&code)], [Ok((ada.clone(), None)), Err(LoginError::BadCode)]);
        let code = logins.invite(ada);
        let ago = Instant::now().checked_sub(CODE_TTL).expect("enough uptime");
        lock(&logins.codes).values_mut().for_each(|code| code.made = ago);
        assert_eq!(logins.redeem(&code), Err(LoginError::BadCode));
    }
}
