//! Variables of a job that concern the installation of packages.

/// Whether a variable can change what a build installs. Such variables of a job reach its build, and are part of the key
/// of its environment. Other variables of a job do neither, so that they cause no new build.
#[must_use]
pub fn is_of_builds(name: &str) -> bool {
    const PREFIXES: [&str; 12] = [
        "UV_",
        "PIP_",
        "SETUPTOOLS_",
        "VCS_VERSIONING_",
        "PBR_",
        "PDM_BUILD_",
        "POETRY_DYNAMIC_VERSIONING_",
        "HATCH_",
        "CMAKE_",
        "SKBUILD_",
        "MATURIN_",
        "CARGO_",
    ];
    const NAMES: [&str; 11] = [
        "CC",
        "CXX",
        "FC",
        "CFLAGS",
        "CXXFLAGS",
        "CPPFLAGS",
        "FFLAGS",
        "LDFLAGS",
        "RUSTFLAGS",
        "PKG_CONFIG_PATH",
        "CUDA_HOME",
    ];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || NAMES.contains(&name)
}

/// Whether a variable configures the access to networks, which does not change what a build installs.
#[must_use]
pub fn is_of_access(name: &str) -> bool {
    name.starts_with("SSL_CERT_") || name == "REQUESTS_CA_BUNDLE" || name.to_ascii_lowercase().ends_with("_proxy")
}
