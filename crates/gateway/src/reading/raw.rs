//! The file as TOML knows it: which keys there are and of which types. What they mean is read in the module above.

use serde::Deserialize;
use toml::Spanned;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) outer: Outer,
    pub(super) nodes: Nodes,
    pub(super) management: Option<Management>,
    #[serde(default)]
    pub(super) node: Vec<Node>,
    pub(super) vpn: Option<Vpn>,
    pub(super) pxe: Option<Pxe>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Outer {
    pub(super) interface: Spanned<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nodes {
    pub(super) interface: Spanned<String>,
    pub(super) address: Spanned<String>,
    pub(super) domain: Option<Spanned<String>>,
    pub(super) outside: Option<bool>,
    pub(super) pool: Option<Spanned<String>>,
    pub(super) lease: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Management {
    pub(super) interface: Spanned<String>,
    pub(super) address: Spanned<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Node {
    pub(super) name: Spanned<String>,
    pub(super) mac: Spanned<String>,
    pub(super) address: Spanned<String>,
    pub(super) management_mac: Option<Spanned<String>>,
    pub(super) management_address: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Vpn {
    pub(super) address: Spanned<String>,
    pub(super) port: Option<Spanned<i64>>,
    pub(super) endpoint: Spanned<String>,
    #[serde(default)]
    pub(super) reach: Vec<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pxe {
    pub(super) boot_file: Spanned<String>,
    pub(super) efi_boot_file: Option<Spanned<String>>,
    pub(super) server: Option<Spanned<String>>,
    pub(super) tftp_root: Option<Spanned<String>>,
}
