//! Checks that no files of one crate use each other in a circle.
//!
//! A file uses another one if its code outside of tests names something that the other one defines. A declaration
//! (`mod name;`) and a name that is only passed on (`pub use`) tie nothing: who uses the name uses the file behind it.
//! A file may use what the modules around it define.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Expr, Item, Macro, Token, UseTree, Visibility};

/// Path of a module below its crate, or of a name in it.
type Segments = Vec<String>;

/// Longest chain of `pub use` that is followed.
const MAX_PASSES: usize = 8;

#[test]
fn no_files_of_a_crate_form_a_circle() {
    let crates = fs::read_dir(root().join("crates")).expect("the project has crates");
    let mut circles = Vec::new();
    for directory in crates {
        let sources = directory.expect("the folder of crates can be listed").path().join("src");
        circles.extend(circles_of(&read_crate(&sources)));
    }
    assert!(
        circles.is_empty(),
        "{} circles of files: move what ties them to one side\n{}",
        circles.len(),
        circles.concat()
    );
}

#[test]
fn circles_are_found() {
    let sources = [
        ("", "mod a; mod b; mod c; pub use b::Thing;"),
        ("a", "use crate::Thing; pub struct Other;"),
        ("b", "pub struct Thing; fn f() -> super::a::Other { super::a::Other }"),
        ("c", "use crate::a::Other; #[cfg(test)] mod tests { use crate::b; }"),
    ];
    let files = sources.map(|(module, source)| {
        let module: Segments = module.split_terminator("::").map(str::to_owned).collect();
        (module, syn::parse_file(source).expect("the source is Rust"))
    });
    let circles = circles_of(&files.into());
    assert_eq!(circles, ["a\n    uses b: Thing\nb\n    uses a: Other\n\n"]);
}

/// The code outside of tests, by module.
fn read_crate(sources: &Path) -> BTreeMap<Segments, syn::File> {
    let mut files = BTreeMap::new();
    let mut folders = vec![sources.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.expect("a folder of sources can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let source = fs::read_to_string(&path).expect("a source is text");
                let file = syn::parse_file(&source).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                files.insert(module_of(path.strip_prefix(sources).expect("the walk stays inside")), file);
            }
        }
    }
    let of_tests: BTreeSet<_> = files.iter().flat_map(|(module, file)| test_modules(module, file)).collect();
    files.retain(|module, _| !(0..=module.len()).any(|length| of_tests.contains(&module[..length])));
    files
}

fn module_of(path: &Path) -> Segments {
    let mut module: Segments =
        path.with_extension("").iter().map(|part| part.to_str().expect("a module has a name").to_owned()).collect();
    if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        module.pop();
    }
    module
}

/// Modules that `file` declares for tests only.
fn test_modules(module: &[String], file: &syn::File) -> Vec<Segments> {
    let declared = file.items.iter().filter_map(|item| match item {
        Item::Mod(declared) if is_for_tests(&declared.attrs) => Some(declared.ident.to_string()),
        _ => None,
    });
    declared.map(|name| [module, &[name]].concat()).collect()
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            list.tokens.to_string().split(|letter: char| !letter.is_alphanumeric()).any(|word| word == "test")
        }
        _ => false,
    })
}

/// One text for each circle: its files, and the names that tie them.
fn circles_of(files: &BTreeMap<Segments, syn::File>) -> Vec<String> {
    let passed_on = passed_on(files);
    let uses: BTreeMap<_, _> =
        files.iter().map(|(module, file)| (module, uses_of(module, file, files, &passed_on))).collect();
    let reached: BTreeMap<_, BTreeSet<&Segments>> = uses.keys().map(|module| (*module, reach(module, &uses))).collect();
    let mut told = BTreeSet::new();
    let mut circles = Vec::new();
    for (module, others) in &reached {
        if !others.contains(module) || !told.insert(*module) {
            continue;
        }
        let members: Vec<_> = others.iter().filter(|other| reached[**other].contains(module)).collect();
        let mut circle = String::new();
        for member in members {
            told.insert(member);
            circle += &format!("{}\n", member.join("::"));
            for (other, names) in uses[*member].iter().filter(|(other, _)| others.contains(other)) {
                let names: Vec<_> = names.iter().map(String::as_str).collect();
                circle += &format!("    uses {}: {}\n", other.join("::"), names.join(", "));
            }
        }
        circles.push(circle + "\n");
    }
    circles
}

/// All modules that are reached from `start` by one use or more.
fn reach<'a>(
    start: &Segments,
    uses: &'a BTreeMap<&Segments, BTreeMap<Segments, BTreeSet<String>>>,
) -> BTreeSet<&'a Segments> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<_> = uses[start].keys().collect();
    while let Some(module) = next.pop() {
        if reached.insert(module) {
            next.extend(uses[module].keys());
        }
    }
    reached
}

/// Where each name comes from that a module takes in, and may pass on to others.
fn passed_on(files: &BTreeMap<Segments, syn::File>) -> BTreeMap<Segments, Segments> {
    let mut origins = BTreeMap::new();
    for (module, file) in files {
        for item in &file.items {
            let Item::Use(item) = item else { continue };
            for (path, name) in names_of(&item.tree) {
                if let Some(origin) = absolute(module, &path, files) {
                    origins.insert([module.as_slice(), &[name]].concat(), origin);
                }
            }
        }
    }
    origins
}

/// What `file` uses of which other files.
fn uses_of(
    module: &[String],
    file: &syn::File,
    files: &BTreeMap<Segments, syn::File>,
    passed_on: &BTreeMap<Segments, Segments>,
) -> BTreeMap<Segments, BTreeSet<String>> {
    let mut named = Named { module: module.to_vec(), files, paths: Vec::new() };
    named.visit_file(file);
    let mut uses: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for path in named.paths {
        let (other, name) = definition(path, files, passed_on);
        if !module.starts_with(&other) {
            uses.entry(other).or_default().insert(name);
        }
    }
    uses
}

/// The module that defines what `path` names, and the name.
fn definition(
    mut path: Segments,
    files: &BTreeMap<Segments, syn::File>,
    passed_on: &BTreeMap<Segments, Segments>,
) -> (Segments, String) {
    for _ in 0..MAX_PASSES {
        let origin = (1..=path.len()).rev().find_map(|length| Some((passed_on.get(&path[..length])?, length)));
        let Some((origin, length)) = origin else { break };
        path = [origin.as_slice(), &path[length..]].concat();
    }
    let length =
        (0..=path.len()).rev().find(|length| files.contains_key(&path[..*length])).expect("a crate has a root");
    let name = path.get(length).or(path.last()).cloned().unwrap_or_default();
    path.truncate(length);
    (path, name)
}

/// The paths of the crate that code outside of tests names.
struct Named<'a> {
    module: Segments,
    files: &'a BTreeMap<Segments, syn::File>,
    paths: Vec<Segments>,
}

impl Named<'_> {
    fn add(&mut self, path: &[String]) {
        self.paths.extend(absolute(&self.module, path, self.files));
    }
}

impl<'ast> Visit<'ast> for Named<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes: &[_] = match item {
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Mod(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            _ => &[],
        };
        if !is_for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if matches!(item.vis, Visibility::Inherited) {
            for (path, _) in names_of(&item.tree) {
                self.add(&path);
            }
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Segments = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.add(&segments);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        let arguments = call.parse_body_with(Punctuated::<Expr, Token![,]>::parse_terminated);
        for argument in arguments.iter().flatten() {
            self.visit_expr(argument);
        }
    }
}

/// Each path of a `use`, and the name under which it is known after it.
fn names_of(tree: &UseTree) -> Vec<(Segments, String)> {
    match tree {
        UseTree::Path(path) => {
            let below = names_of(&path.tree);
            below.into_iter().map(|(rest, name)| ([vec![path.ident.to_string()], rest].concat(), name)).collect()
        }
        UseTree::Name(name) if name.ident == "self" => vec![(Vec::new(), String::new())],
        UseTree::Name(name) => vec![(vec![name.ident.to_string()], name.ident.to_string())],
        UseTree::Rename(renamed) => vec![(vec![renamed.ident.to_string()], renamed.rename.to_string())],
        UseTree::Glob(_) => vec![(Vec::new(), String::new())],
        UseTree::Group(group) => group.items.iter().flat_map(names_of).collect(),
    }
}

/// `path`, as written in `module`, from the root of the crate. None: it leads into another crate.
fn absolute(module: &[String], path: &[String], files: &BTreeMap<Segments, syn::File>) -> Option<Segments> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([module, rest].concat()),
        "super" => {
            let (_, parent) = module.split_last()?;
            match rest.first() {
                Some(next) if next == "super" => absolute(parent, rest, files),
                _ => Some([parent, rest].concat()),
            }
        }
        _ => Some([module, path].concat()).filter(|_| files.contains_key(&[module, &path[..1]].concat())),
    }
}

fn root() -> PathBuf {
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets the variable");
    Path::new(&xtask).parent().expect("xtask is a direct child of the root").to_owned()
}
