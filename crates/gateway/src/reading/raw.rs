//! The TOML structure of the file: keys and types. The parent module interprets the values.
//!
//! The tables are decoded by hand, because a derived deserializer would stop at the first mistake.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::reader::Reader;

/// A text and its position. `None` if the field is missing or has another type, which the reader reports.
pub(super) type Text = Option<Spanned<String>>;

#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) outer: Outer,
    pub(super) nodes: Nodes,
    pub(super) management: Option<Management>,
    pub(super) node: Vec<Node>,
    pub(super) vpn: Option<Vpn>,
    pub(super) pxe: Option<Pxe>,
}

#[derive(Debug, Default)]
pub(super) struct Outer {
    pub(super) interface: Text,
}

#[derive(Debug, Default)]
pub(super) struct Nodes {
    pub(super) interface: Text,
    pub(super) address: Text,
    pub(super) domain: Text,
    pub(super) outside: Option<bool>,
    pub(super) pool: Text,
    pub(super) lease: Text,
}

#[derive(Debug)]
pub(super) struct Management {
    pub(super) interface: Text,
    pub(super) address: Text,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: Text,
    pub(super) mac: Text,
    pub(super) address: Text,
    pub(super) management_mac: Text,
    pub(super) management_address: Text,
}

#[derive(Debug)]
pub(super) struct Vpn {
    pub(super) address: Text,
    pub(super) port: Option<Spanned<i64>>,
    pub(super) endpoint: Text,
    pub(super) reach: Vec<Spanned<String>>,
}

#[derive(Debug)]
pub(super) struct Pxe {
    /// The line of the table's header.
    pub(super) line: usize,
    pub(super) boot_file: Text,
    pub(super) efi_boot_file: Text,
    pub(super) server: Text,
    pub(super) tftp_root: Text,
}

/// A table that is being read.
struct Table<'a, 'i> {
    /// Prefix of the table's field names, e.g. `nodes`; empty for the file.
    name: &'static str,
    line: usize,
    entries: &'a DeTable<'i>,
    /// Keys that were read.
    known: Vec<&'static str>,
}

impl Reader<'_> {
    /// The tables of the file. `None` if the text is not TOML.
    pub(super) fn file(&mut self) -> Option<File> {
        let (root, errors) = DeTable::parse_recoverable(self.text);
        if !errors.is_empty() {
            errors.iter().for_each(|error| self.syntax_mistake(error));
            return None;
        }
        let mut file = Table { name: "", line: 1, entries: root.get_ref(), known: Vec::new() };
        let read = File {
            outer: self.required_table(&mut file, "outer", Self::raw_outer),
            nodes: self.required_table(&mut file, "nodes", Self::raw_nodes),
            management: self.table(&mut file, "management", Self::raw_management),
            node: self.tables(&mut file, "node", Self::raw_node),
            vpn: self.table(&mut file, "vpn", Self::raw_vpn),
            pxe: self.table(&mut file, "pxe", Self::raw_pxe),
        };
        self.unknown(&file);
        Some(read)
    }

    fn raw_outer(&mut self, table: &mut Table<'_, '_>) -> Outer {
        Outer { interface: self.needed_text(table, "interface") }
    }

    fn raw_nodes(&mut self, table: &mut Table<'_, '_>) -> Nodes {
        Nodes {
            interface: self.needed_text(table, "interface"),
            address: self.needed_text(table, "address"),
            domain: self.text(table, "domain"),
            outside: self.value(table, "outside", "true or false", |value| match value {
                DeValue::Boolean(is) => Some(*is),
                _ => None,
            }),
            pool: self.text(table, "pool"),
            lease: self.text(table, "lease"),
        }
    }

    fn raw_management(&mut self, table: &mut Table<'_, '_>) -> Management {
        Management { interface: self.needed_text(table, "interface"), address: self.needed_text(table, "address") }
    }

    fn raw_node(&mut self, table: &mut Table<'_, '_>) -> Node {
        Node {
            name: self.needed_text(table, "name"),
            mac: self.needed_text(table, "mac"),
            address: self.needed_text(table, "address"),
            management_mac: self.text(table, "management_mac"),
            management_address: self.text(table, "management_address"),
        }
    }

    fn raw_vpn(&mut self, table: &mut Table<'_, '_>) -> Vpn {
        Vpn {
            address: self.needed_text(table, "address"),
            port: self.spanned(table, "port", "a number such as 51820", |value| match value {
                DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok(),
                _ => None,
            }),
            endpoint: self.needed_text(table, "endpoint"),
            reach: self
                .value(table, "reach", "a list of texts such as [\"head\", \"nodes\"]", texts)
                .unwrap_or_default(),
        }
    }

    fn raw_pxe(&mut self, table: &mut Table<'_, '_>) -> Pxe {
        Pxe {
            line: table.line,
            boot_file: self.needed_text(table, "boot_file"),
            efi_boot_file: self.text(table, "efi_boot_file"),
            server: self.text(table, "server"),
            tftp_root: self.text(table, "tftp_root"),
        }
    }

    /// Reads a required table, or reports that it is missing.
    fn required_table<T: Default>(
        &mut self,
        file: &mut Table<'_, '_>,
        key: &'static str,
        read: impl FnOnce(&mut Self, &mut Table<'_, '_>) -> T,
    ) -> T {
        if !file.entries.contains_key(key) {
            self.missing(None, key, &format!("add a table [{key}]"));
        }
        self.table(file, key, read).unwrap_or_default()
    }

    fn table<T>(
        &mut self,
        file: &mut Table<'_, '_>,
        key: &'static str,
        read: impl FnOnce(&mut Self, &mut Table<'_, '_>) -> T,
    ) -> Option<T> {
        let value = self.entry(file, key)?;
        match value.get_ref() {
            DeValue::Table(entries) => Some(self.read_table(key, value.span().start, entries, read)),
            _ => {
                self.mistake(self.line_of(value), key, "not a table", &format!("start the table with [{key}]"));
                None
            }
        }
    }

    fn tables<T>(
        &mut self,
        file: &mut Table<'_, '_>,
        key: &'static str,
        read: impl Fn(&mut Self, &mut Table<'_, '_>) -> T,
    ) -> Vec<T> {
        let Some(value) = self.entry(file, key) else { return Vec::new() };
        let items: &[Spanned<DeValue<'_>>] = match value.get_ref() {
            DeValue::Array(items) => items,
            _ => &[],
        };
        let mut all = Vec::new();
        for item in items {
            match item.get_ref() {
                DeValue::Table(entries) => all.push(self.read_table(key, item.span().start, entries, &read)),
                _ => self.mistake(self.line_of(item), key, "not a table", &format!("start each table with [[{key}]]")),
            }
        }
        if !matches!(value.get_ref(), DeValue::Array(_)) {
            self.mistake(self.line_of(value), key, "must be an array of tables", &format!("start each with [[{key}]]"));
        }
        all
    }

    fn read_table<T>(
        &mut self,
        name: &'static str,
        start: usize,
        entries: &DeTable<'_>,
        read: impl FnOnce(&mut Self, &mut Table<'_, '_>) -> T,
    ) -> T {
        let mut table = Table { name, line: self.line(start), entries, known: Vec::new() };
        let value = read(self, &mut table);
        self.unknown(&table);
        value
    }

    fn needed_text(&mut self, table: &mut Table<'_, '_>, key: &'static str) -> Text {
        if !table.entries.contains_key(key) {
            self.missing(Some(table.line), &format!("{}.{key}", table.name), &format!("add {key} = \"…\""));
        }
        self.text(table, key)
    }

    fn text(&mut self, table: &mut Table<'_, '_>, key: &'static str) -> Text {
        self.spanned(table, key, "a text in quotation marks", |value| match value {
            DeValue::String(text) => Some(text.to_string()),
            _ => None,
        })
    }

    fn spanned<T>(
        &mut self,
        table: &mut Table<'_, '_>,
        key: &'static str,
        kind: &str,
        read: impl Fn(&DeValue<'_>) -> Option<T>,
    ) -> Option<Spanned<T>> {
        let span = self.entry(table, key)?.span();
        self.value(table, key, kind, read).map(|value| Spanned::new(span, value))
    }

    fn value<T>(
        &mut self,
        table: &mut Table<'_, '_>,
        key: &'static str,
        kind: &str,
        read: impl Fn(&DeValue<'_>) -> Option<T>,
    ) -> Option<T> {
        let value = self.entry(table, key)?;
        let found = read(value.get_ref());
        if found.is_none() {
            let field = format!("{}.{key}", table.name);
            self.mistake(self.line_of(value), &field, "wrong type", &format!("write {kind}"));
        }
        found
    }

    /// The value of a key. Marks the key as known.
    fn entry<'a, 'i>(&self, table: &mut Table<'a, 'i>, key: &'static str) -> Option<&'a Spanned<DeValue<'i>>> {
        table.known.push(key);
        table.entries.get(key)
    }

    /// Reports keys that were not read.
    fn unknown(&mut self, table: &Table<'_, '_>) {
        let mut known = table.known.clone();
        known.sort_unstable();
        known.dedup();
        for key in table.entries.keys().filter(|key| !known.contains(&key.get_ref().as_ref())) {
            let what = format!("unknown field `{}`", key.get_ref().escape_debug());
            self.mistake(self.line_of(key), table.name, &what, &format!("valid fields: {}", known.join(", ")));
        }
    }
}

/// Converts a list of strings.
fn texts(value: &DeValue<'_>) -> Option<Vec<Spanned<String>>> {
    let DeValue::Array(items) = value else { return None };
    let text = |item: &Spanned<DeValue<'_>>| match item.get_ref() {
        DeValue::String(text) => Some(Spanned::new(item.span(), text.to_string())),
        _ => None,
    };
    items.iter().map(text).collect()
}
