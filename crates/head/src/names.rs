//! Random names for secrets and files.

/// An unpredictable name: 128 random bits in hexadecimal.
pub(crate) fn random_name() -> String {
    let mut bytes = [0; 16];
    rustls::crypto::ring::default_provider()
        .secure_random
        .fill(&mut bytes)
        .expect("the kernel has random bytes once it has booted");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
