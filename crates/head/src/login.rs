//! Logging in: how somebody elsewhere shows who they are, and gets a token for it.
//!
//! Either with an SSH key: the head gives out a random challenge, the client has it signed with the namespace of Hostler's logins, the
//! cluster's fingerprint and the user's name in it, and the head looks whether the key is the user's. Or with a login code that an
//! admin has made: its secret is good once.
//!
//! A challenge is good for a minute and a code for a day, on the monotonic clock; both live in memory and end with the head's process,
//! as join codes do: whoever asked can ask again. Tokens are kept in the state, as hashes. Who fails learns nothing of who is a user:
//! the signature is checked before anything is looked up, and every failure has the same words. An address that fails often waits.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hostler_model::{Digest, UserName};
use hostler_proto::users::LOGIN_NAMESPACE;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA512, RsaPublicKeyComponents};
use ssh_key::public::KeyData;
use ssh_key::{Algorithm, EcdsaCurve, HashAlg, PublicKey, SshSig};

use crate::blobs::name_of;
use crate::trust::random_name;

/// How long a challenge can be answered.
const CHALLENGE_TTL: Duration = Duration::from_secs(60);

/// Challenges that wait at once.
const MAX_CHALLENGES: usize = 10_000;

/// How long a login code can be used.
const CODE_TTL: Duration = Duration::from_secs(24 * 3600);

/// Login codes that wait at once. The oldest makes room.
const MAX_CODES: usize = 10_000;

/// How often an address may fail before it must wait, and for how long.
const MAX_FAILURES: u32 = 10;
const FAILURE_WINDOW: Duration = Duration::from_secs(60);

/// Addresses whose failures are remembered at once.
const MAX_ADDRESSES: usize = 100_000;

/// The longest line that can be a key, in bytes.
const MAX_KEY_LEN: usize = 8 << 10;

/// What waits for its answer, and who has failed lately.
#[derive(Default)]
pub(crate) struct Logins {
    challenges: Mutex<HashMap<String, Instant>>,
    /// By the hash of the secret.
    codes: Mutex<HashMap<Digest, Code>>,
    failures: Mutex<HashMap<IpAddr, Failures>>,
}

struct Code {
    user: UserName,
    made: Instant,
}

struct Failures {
    since: Instant,
    count: u32,
}

/// Why a login comes to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LoginError {
    /// The challenge was never given out, was answered, or is too old.
    #[error("this challenge is unknown, was answered already or is older than a minute")]
    BadChallenge,
    /// Which of them is for nobody to know.
    #[error("the signature is not one of a key that this cluster knows for that user")]
    BadKey,
    /// Unknown, used or too old.
    #[error("this login code is unknown, was used already or is older than a day")]
    BadCode,
    /// Too many failures.
    #[error("too many logins have failed from there; wait {0} seconds")]
    TooMany(u64),
}

impl Logins {
    /// A challenge to be signed.
    pub(crate) fn challenge(&self) -> String {
        let mut challenges = lock(&self.challenges);
        if challenges.len() >= MAX_CHALLENGES {
            challenges.retain(|_, made| made.elapsed() < CHALLENGE_TTL);
        }
        // Whoever asks for many that they never answer keeps nobody else from logging in.
        if challenges.len() >= MAX_CHALLENGES
            && let Some(oldest) = challenges.iter().min_by_key(|(_, made)| **made).map(|(nonce, _)| nonce.clone())
        {
            challenges.remove(&oldest);
        }
        let nonce = secret();
        challenges.insert(nonce.clone(), Instant::now());
        nonce
    }

    /// Uses a challenge up.
    ///
    /// # Errors
    /// When it is not one that can be answered.
    pub(crate) fn answer(&self, nonce: &str) -> Result<(), LoginError> {
        let made = lock(&self.challenges).remove(nonce);
        made.filter(|made| made.elapsed() < CHALLENGE_TTL).map(drop).ok_or(LoginError::BadChallenge)
    }

    /// The secret of a new login code for `user`.
    pub(crate) fn invite(&self, user: UserName) -> String {
        let mut codes = lock(&self.codes);
        codes.retain(|_, code| code.made.elapsed() < CODE_TTL);
        if codes.len() >= MAX_CODES
            && let Some(oldest) = codes.iter().min_by_key(|(_, code)| code.made).map(|(key, _)| *key)
        {
            codes.remove(&oldest);
        }
        let secret = secret();
        codes.insert(name_of(secret.as_bytes()), Code { user, made: Instant::now() });
        secret
    }

    /// Uses a login code up: for whom it was made.
    ///
    /// # Errors
    /// When it is none.
    pub(crate) fn redeem(&self, secret: &str) -> Result<UserName, LoginError> {
        let code = lock(&self.codes).remove(&name_of(secret.as_bytes()));
        code.filter(|code| code.made.elapsed() < CODE_TTL).map(|code| code.user).ok_or(LoginError::BadCode)
    }

    /// Whether somebody at this address may try.
    ///
    /// # Errors
    /// When they have failed too often lately.
    pub(crate) fn may_try(&self, from: Option<IpAddr>) -> Result<(), LoginError> {
        let failures = lock(&self.failures);
        let Some(failed) = from.and_then(|from| failures.get(&neighbourhood(from))) else { return Ok(()) };
        match FAILURE_WINDOW.checked_sub(failed.since.elapsed()) {
            Some(left) if failed.count >= MAX_FAILURES => Err(LoginError::TooMany(left.as_secs() + 1)),
            Some(_) | None => Ok(()),
        }
    }

    /// Somebody at this address has failed.
    pub(crate) fn failed(&self, from: Option<IpAddr>) {
        let Some(from) = from.map(neighbourhood) else { return };
        let mut failures = lock(&self.failures);
        if failures.len() >= MAX_ADDRESSES {
            failures.retain(|_, failed| failed.since.elapsed() < FAILURE_WINDOW);
        }
        if failures.len() >= MAX_ADDRESSES {
            // Whoever has so many addresses is not held up by counting them.
            return;
        }
        let failed = failures.entry(from).or_insert_with(|| Failures { since: Instant::now(), count: 0 });
        if failed.since.elapsed() >= FAILURE_WINDOW {
            *failed = Failures { since: Instant::now(), count: 0 };
        }
        failed.count += 1;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Addresses that one party has at will count as one.
fn neighbourhood(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            std::net::Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

/// 256 random bits in hexadecimal digits.
pub(crate) fn secret() -> String {
    format!("{}{}", random_name(), random_name())
}

/// A public key as somebody wrote it, in the one form in which it is kept.
///
/// # Errors
/// Why it cannot be used, as the rest of a sentence.
pub(crate) fn normal_key(line: &str) -> Result<String, String> {
    if line.len() > MAX_KEY_LEN || line.contains(|c: char| c.is_control()) {
        return Err("is not one line of an authorized_keys file".to_owned());
    }
    let key = PublicKey::from_openssh(line.trim()).map_err(|error| format!("is no SSH public key ({error})"))?;
    match key.algorithm() {
        Algorithm::Ed25519 | Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 } => {}
        Algorithm::Rsa { .. } if rsa_bits(key.key_data()) >= 2048 => {}
        Algorithm::Rsa { .. } => return Err("is an RSA key of less than 2048 bits".to_owned()),
        other => return Err(format!("is of type {other}; use ed25519, ecdsa with nistp256, or rsa")),
    }
    key.to_openssh().map_err(|error| format!("cannot be written again ({error})"))
}

fn rsa_bits(key: &KeyData) -> usize {
    let modulus = key.rsa().and_then(|key| key.n.as_positive_bytes());
    modulus.map_or(0, |bytes| bytes.len() * 8 - bytes.first().map_or(0, |first| first.leading_zeros() as usize))
}

/// Whether `signature` is a good one of `text` by one of `keys`.
///
/// # Errors
/// [`LoginError::BadKey`], whatever is wrong.
pub(crate) fn check_signature(signature: &str, text: &str, keys: &[String]) -> Result<(), LoginError> {
    let signature = SshSig::from_pem(signature).map_err(|_| LoginError::BadKey)?;
    // Before anybody is looked up: a good signature takes as long to refuse as a bad one.
    let key = signer(&signature, text.as_bytes()).ok_or(LoginError::BadKey)?;
    let is_key = |line: &String| PublicKey::from_openssh(line).is_ok_and(|known| known.key_data() == &key);
    if keys.iter().any(is_key) { Ok(()) } else { Err(LoginError::BadKey) }
}

/// The key that has made a signature, if it is a good one of `text`.
fn signer(signature: &SshSig, text: &[u8]) -> Option<KeyData> {
    if signature.namespace() != LOGIN_NAMESPACE {
        return None;
    }
    let key = signature.public_key().clone();
    let is_good = match key.rsa() {
        Some(rsa) => {
            // Without the `rsa` crate, which has an open advisory on timing, ring checks those.
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

    /// A key made by `ssh-keygen`, and its public line.
    fn key(directory: &std::path::Path, kind: &[&str]) -> (std::path::PathBuf, String) {
        let path = directory.join(kind.concat().replace('-', ""));
        let made =
            Command::new("ssh-keygen").args(["-q", "-N", "", "-C", "a comment", "-f"]).arg(&path).args(kind).status();
        assert!(made.expect("ssh-keygen is installed").success());
        let public = std::fs::read_to_string(path.with_added_extension("pub")).expect("it was made");
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
        child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success());
        String::from_utf8(output.stdout).expect("text")
    }

    #[test]
    fn challenges_that_nobody_answers_keep_nobody_from_logging_in() {
        let logins = Logins::default();
        let first = logins.challenge();
        let others: Vec<String> = (0..MAX_CHALLENGES).map(|_| logins.challenge()).collect();
        assert_eq!(logins.answer(&first), Err(LoginError::BadChallenge), "the oldest made room");
        assert_eq!(logins.answer(&others[MAX_CHALLENGES - 1]), Ok(()));
        assert_eq!(logins.answer(&others[0]), Ok(()));
    }

    #[test]
    fn signatures_of_every_usual_kind_of_key_are_checked() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (_, other) = key(directory.path(), &["-t", "ed25519", "-Z", "aes256-ctr"]);
        for kind in [&["-t", "ed25519"][..], &["-t", "ecdsa", "-b", "256"], &["-t", "rsa", "-b", "2048"]] {
            let (path, public) = key(directory.path(), kind);
            let known = vec![other.clone(), normal_key(&public).expect("a usual key")];
            let signature = sign(&path, LOGIN_NAMESPACE, "text");
            assert_eq!(check_signature(&signature, "text", &known), Ok(()), "{kind:?}");
            let bad = Err(LoginError::BadKey);
            assert_eq!(check_signature(&signature, "other text", &known), bad, "{kind:?}");
            assert_eq!(check_signature(&signature, "text", &known[..1]), bad, "{kind:?}: another's key");
            assert_eq!(check_signature(&signature, "text", &[]), bad, "{kind:?}");
            assert_eq!(check_signature(&sign(&path, "file", "text"), "text", &known), bad, "{kind:?}: for files");
        }
        for rubbish in ["", "-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----\n", "\0"] {
            assert_eq!(check_signature(rubbish, "text", std::slice::from_ref(&other)), Err(LoginError::BadKey));
        }
    }

    #[test]
    fn keys_that_cannot_be_used_are_refused_with_a_reason() {
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
    fn challenges_and_codes_are_good_once_and_for_a_while() {
        let logins = Logins::default();
        let nonce = logins.challenge();
        assert_eq!(logins.answer("guess"), Err(LoginError::BadChallenge));
        assert_eq!([logins.answer(&nonce), logins.answer(&nonce)], [Ok(()), Err(LoginError::BadChallenge)]);
        let ada: UserName = "ada".parse().expect("a valid name");
        let code = logins.invite(ada.clone());
        assert_eq!(logins.redeem("guess"), Err(LoginError::BadCode));
        assert_eq!([logins.redeem(&code), logins.redeem(&code)], [Ok(ada.clone()), Err(LoginError::BadCode)]);

        let (nonce, code) = (logins.challenge(), logins.invite(ada));
        let ago = |time| Instant::now().checked_sub(time).expect("the clock can tell");
        lock(&logins.challenges).values_mut().for_each(|made| *made = ago(CHALLENGE_TTL));
        lock(&logins.codes).values_mut().for_each(|code| code.made = ago(CODE_TTL));
        assert_eq!(logins.answer(&nonce), Err(LoginError::BadChallenge));
        assert_eq!(logins.redeem(&code), Err(LoginError::BadCode));
    }

    #[test]
    fn whoever_fails_often_waits_and_nobody_else() {
        let logins = Logins::default();
        let address = |text: &str| Some(text.parse::<IpAddr>().expect("an address"));
        for host in 0..10 {
            assert_eq!(logins.may_try(address("2001:db8::1")), Ok(()));
            logins.failed(address(&format!("2001:db8::{host}")));
        }
        assert!(matches!(logins.may_try(address("2001:db8::ffff")), Err(LoginError::TooMany(1..=60))));
        assert_eq!(logins.may_try(address("2001:db9::1")), Ok(()));
        assert_eq!(logins.may_try(None), Ok(()));
        let ago = Instant::now().checked_sub(FAILURE_WINDOW).expect("the clock can tell");
        lock(&logins.failures).values_mut().for_each(|failed| failed.since = ago);
        assert_eq!(logins.may_try(address("2001:db8::1")), Ok(()));
    }
}
