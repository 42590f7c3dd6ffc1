//! pip's settings of package indexes. uv does not read them, so that they become its variables.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use hostler_project::files::read_regular;

/// Maximum size of a configuration file, in bytes.
const MOST_BYTES: u64 = 4 << 20;

/// Settings of pip, the variables of uv with the same meaning, what separates words in their values, and other variables
/// that take precedence.
const SAME: [(&str, &str, &str, &[&str]); 9] = [
    ("index-url", INDEX, " ", &["UV_INDEX_URL"]),
    ("extra-index-url", "UV_EXTRA_INDEX_URL", " ", &["UV_INDEX"]),
    ("find-links", "UV_FIND_LINKS", ",", &[]),
    ("trusted-host", "UV_INSECURE_HOST", " ", &[]),
    ("cert", "SSL_CERT_FILE", " ", &[]),
    ("client-cert", "SSL_CLIENT_CERT", " ", &[]),
    ("proxy", "ALL_PROXY", " ", &["all_proxy"]),
    ("timeout", "UV_HTTP_TIMEOUT", " ", &[]),
    ("default-timeout", "UV_HTTP_TIMEOUT", " ", &[]),
];

/// uv's variable with the index that replaces the usual one.
const INDEX: &str = "UV_DEFAULT_INDEX";

/// The certificate authorities of the machine. pip knows them, and uv only if it is told.
const AUTHORITIES: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

/// Variables of builds.
pub(super) type Variables = BTreeMap<OsString, OsString>;

/// Configuration files that can name package indexes. Later files of pip take precedence.
const OF_PIP: [&str; 4] = ["/etc/xdg/pip/pip.conf", "/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf"];
const OF_UV: [&str; 3] = ["/etc/xdg/uv/uv.toml", "/etc/uv/uv.toml", "~/.config/uv/uv.toml"];

/// Contents of the configuration files.
#[derive(Default)]
pub(super) struct Files {
    pub(super) pip: Vec<Vec<u8>>,
    pub(super) uv: Vec<Vec<u8>>,
}

impl Files {
    /// Reads the files of the machine, those in a home directory, and the one that a variable of the node names for pip.
    pub(super) fn read(home: Option<&OsStr>, of_node: &Variables) -> Self {
        let path = |name: &&str| match name.strip_prefix("~/") {
            Some(name) => home.map(|home| Path::new(home).join(name)),
            None => Some(PathBuf::from(name)),
        };
        // The tools cannot read unreadable files either.
        let read = |path: PathBuf| read_regular(&path, MOST_BYTES).ok();
        let named = of_node.get(OsStr::new("PIP_CONFIG_FILE")).map(PathBuf::from);
        Self {
            pip: OF_PIP.iter().filter_map(path).chain(named).filter_map(read).collect(),
            uv: OF_UV.iter().filter_map(path).filter_map(read).collect(),
        }
    }

    /// Adds variables of uv for pip's settings in files and variables, except those that uv has itself. With
    /// `chooses_index`, the project chooses the index. Returns whether no index may be used.
    pub(super) fn hand_over(&self, variables: &mut Variables, chooses_index: bool) -> bool {
        let has = |variables: &Variables, name: &str| variables.contains_key(OsStr::new(name));
        if !has(variables, "SSL_CERT_FILE") && AUTHORITIES.iter().any(|file| Path::new(file).exists()) {
            variables.entry("UV_SYSTEM_CERTS".into()).or_insert_with(|| "1".into());
        }
        // Who configures uv does not need pip's settings.
        if !self.uv.is_empty() {
            return false;
        }
        let settings = self.settings(variables);
        for (setting, name, separator, others) in SAME {
            let is_chosen = (chooses_index && name == INDEX) || others.iter().any(|other| has(variables, other));
            if let Some(value) = settings.get(setting).filter(|value| !is_chosen && !value.is_empty()) {
                let value = value.split_whitespace().collect::<Vec<_>>().join(separator);
                variables.entry(name.into()).or_insert_with(|| value.into());
            }
        }
        settings.get("no-index").is_some_and(|value| ["1", "true", "yes", "on"].contains(&&*value.to_lowercase()))
    }

    /// pip's settings by name. Variables precede files, and the section `install` precedes `global`.
    fn settings(&self, variables: &Variables) -> BTreeMap<String, String> {
        let name_of = |name: &str| name.trim().to_ascii_lowercase().replace('_', "-");
        let mut sections = BTreeMap::<String, BTreeMap<String, String>>::new();
        for file in &self.pip {
            let (mut section, mut name) = (String::new(), String::new());
            for line in String::from_utf8_lossy(file).lines() {
                let values = sections.entry(section.clone()).or_default();
                if line.trim_start().starts_with(['#', ';']) {
                } else if line.starts_with(char::is_whitespace) {
                    // It continues the value of the line before.
                    *values.entry(name.clone()).or_default() += line;
                } else if let Some(found) = line.trim_end().strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
                    (section, name) = (found.to_owned(), String::new());
                } else if let Some((found, value)) = line.split_once(['=', ':']) {
                    name = name_of(found);
                    values.insert(name.clone(), value.trim().to_owned());
                }
            }
        }
        let of_files = ["global", "install"].into_iter().filter_map(|name| sections.remove(name)).flatten();
        let mut all: BTreeMap<String, String> = of_files.collect();
        let of_variables = variables.iter().filter_map(|(name, value)| {
            let name = name.to_str()?.strip_prefix("PIP_")?;
            Some((name_of(name), value.to_string_lossy().into_owned()))
        });
        all.extend(of_variables);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value that a variable gets, from variables, files of pip and one of uv.
    fn handed_over(name: &str, variables: &[(&str, &str)], pip: &[&str], uv: &str, chooses_index: bool) -> String {
        let bytes = |text: &&str| text.as_bytes().to_vec();
        let mut all = variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let uv = Some(uv).filter(|uv| !uv.is_empty());
        let files = Files { pip: pip.iter().map(bytes).collect(), uv: uv.iter().map(bytes).collect() };
        if files.hand_over(&mut all, chooses_index) {
            return "no index".to_owned();
        }
        all.get(OsStr::new(name)).map(|value| value.to_string_lossy().into_owned()).unwrap_or_default()
    }

    #[test]
    fn settings_of_pip_become_variables_of_uv() {
        let of_machine = "[global]\nindex-url = https://old/simple\ntimeout: 20\n# trusted-host = no\ntrusted-host =\n    a\n    b:80\n\
                          [freeze]\nindex-url = https://other/simple\n";
        let of_user =
            "[install]\nindex_url = https://user:secret@mirror/simple\n[global]\nindex-url = https://less/simple\n";
        let of_job = [("PIP_FIND_LINKS", "/opt/wheels https://x/"), ("PIP_CERT", "/ca")];
        for (name, expected) in [
            (INDEX, "https://user:secret@mirror/simple"),
            ("UV_INSECURE_HOST", "a b:80"),
            ("UV_HTTP_TIMEOUT", "20"),
            ("UV_FIND_LINKS", "/opt/wheels,https://x/"),
            ("SSL_CERT_FILE", "/ca"),
        ] {
            assert_eq!(handed_over(name, &of_job, &[of_machine, of_user], "", false), expected, "{name}");
        }
        assert_eq!(handed_over("", &[("PIP_no_index", "Yes")], &[], "", false), "no index");
    }

    #[test]
    fn settings_of_uv_and_of_the_project_precede_those_of_pip() {
        let pip = ["[global]\nindex-url = of-pip\nextra-index-url = more\n"];
        assert_eq!(handed_over(INDEX, &[], &pip, "", false), "of-pip");
        assert_eq!(handed_over(INDEX, &[], &pip, "", true), "");
        assert_eq!(handed_over("UV_EXTRA_INDEX_URL", &[], &pip, "", true), "more");
        assert_eq!(handed_over(INDEX, &[("UV_INDEX_URL", "of-uv")], &pip, "", false), "");
        assert_eq!(handed_over(INDEX, &[(INDEX, "of-uv")], &pip, "", false), "of-uv");
        assert_eq!(handed_over(INDEX, &[], &pip, "index-url = 'of-uv'\n", false), "");
    }
}
