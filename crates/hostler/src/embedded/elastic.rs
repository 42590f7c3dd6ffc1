//! The head's `power.toml` in an elastic cluster.
//!
//! `hostler up` replaces and removes only text that it has generated itself. A file that a person wrote or edited stays
//! as it is.

use std::fs;
use std::io;
use std::path::Path;

use hostler_cli::failure::{During, Failure};

/// Boot time of a virtual node.
pub(super) const BOOT: &str = "3s";

/// Settings for all nodes. The times are short, so that users can watch nodes being switched on and off.
const POLICY: &str = "# Written by `hostler up --elastic`. For real machines these times are minutes.\n\
    idle = \"10s\"\nmin_up = \"10s\"\nwatch = \"500ms\"\npoll = \"5s\"\nboot_timeout = \"30s\"\nstop_timeout = \"15s\"\nretry = \"10s\"\n";

/// Lets the head switch these nodes on and off. A file that a person wrote or edited must name all of them.
pub(super) fn enable(path: &Path, nodes: &[&str]) -> Result<(), Failure> {
    match read(path)? {
        Some(text) if !is_generated(&text) => {
            let missing = missing_nodes(&text, nodes);
            if missing.is_empty() {
                return Ok(());
            }
            Err(Failure::new(format!("{} has no table for {}", path.display(), missing.join(", ")))
                .because(&io::Error::other("you wrote or edited this file, so `hostler up` does not replace it"))
                .hint(format!(
                    "add these tables, or move the file away, so that `hostler up --elastic` writes a new one; {TABLE}"
                ))
                .hint("`hostler up` without --elastic starts the cluster with your file"))
        }
        Some(_) => fs::write(path, generated(nodes)).during(|| format!("cannot write {}", path.display())),
        // Fails if the path is a link to a missing file.
        None => fs::File::create_new(path)
            .and_then(|mut file| io::Write::write_all(&mut file, generated(nodes).as_bytes()))
            .during(|| format!("cannot write {}", path.display())),
    }
}

/// The hint at the form of a node's table.
const TABLE: &str = "a table is `[nodes.NAME]` with `controller = { kind = \"virtual\" }`";

/// Removes a generated file. Returns whether a file of a person stays.
pub(super) fn disable(path: &Path) -> Result<bool, Failure> {
    match read(path)? {
        Some(text) if is_generated(&text) => {
            fs::remove_file(path).during(|| format!("cannot remove {}", path.display()))?;
            Ok(false)
        }
        found => Ok(found.is_some()),
    }
}

fn read(path: &Path) -> Result<Option<String>, Failure> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).during(|| format!("cannot read {}", path.display())),
    }
}

fn generated(nodes: &[&str]) -> String {
    let tables = nodes
        .iter()
        .map(|node| format!("\n[nodes.{node}]\ncontroller = {{ kind = \"virtual\" }}\nboot = \"{BOOT}\"\n"));
    format!("{POLICY}{}", tables.collect::<String>())
}

/// Whether a text is exactly what [`generated`] returns for some nodes.
fn is_generated(text: &str) -> bool {
    let nodes: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("[nodes.")?.strip_suffix(']')).collect();
    text == generated(&nodes)
}

/// The nodes for which the file has no table.
fn missing_nodes<'a>(text: &str, nodes: &[&'a str]) -> Vec<&'a str> {
    let file: toml::Table = text.parse().unwrap_or_default();
    let named = file.get("nodes").and_then(toml::Value::as_table);
    let is_missing = |name: &&str| !named.is_some_and(|named| named.contains_key(*name));
    nodes.iter().copied().filter(is_missing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BY_HAND: [(&str, &str); 5] = [
        ("other nodes", "[nodes.rack1]\ncontroller = { kind = \"ipmi\" }\n"),
        ("only a policy", "idle = \"5m\"\n"),
        ("a comment", "# not yet\n"),
        ("nothing", ""),
        ("no TOML", "idle = \n"),
    ];

    #[test]
    fn power_file_of_a_person_is_neither_removed_nor_overwritten() {
        let folder = tempfile::tempdir().expect("temporary directory");
        let path = folder.path().join("power.toml");
        let mut by_hand: Vec<(&str, String)> = BY_HAND.map(|(what, text)| (what, text.to_owned())).into();
        by_hand.push(("generated, with another time", generated(&["n1"]).replace("\"10s\"", "\"5m\"")));
        by_hand.push(("generated, with a line more", format!("{}watts = 90\n", generated(&["n1"]))));
        by_hand.push(("generated, without the comment", generated(&["n1"]).replace("# Written", "# Read")));
        for (what, text) in by_hand {
            fs::write(&path, &text).expect("writable");
            assert!(disable(&path).expect(what), "{what}: the file stays");
            let refusal = enable(&path, &["n1", "n2"]).expect_err(what).render();
            assert!(refusal.contains("power.toml has no table for ") && refusal.contains("n2"), "{what}: {refusal}");
            assert_eq!(fs::read_to_string(&path).expect(what), text, "{what}");
        }
    }

    #[test]
    fn edited_power_file_that_names_all_nodes_is_used() {
        let folder = tempfile::tempdir().expect("temporary directory");
        let path = folder.path().join("power.toml");
        let text = generated(&["n1", "n2"]).replace("\"10s\"", "\"5m\"");
        fs::write(&path, &text).expect("writable");
        enable(&path, &["n1"]).expect("all nodes are named");
        assert_eq!(fs::read_to_string(&path).expect("written"), text);
    }

    #[test]
    fn generated_power_file_is_replaced_and_removed() {
        let folder = tempfile::tempdir().expect("temporary directory");
        let path = folder.path().join("power.toml");
        for names in [&["n1"][..], &["n1", "n2"], &["n1"]] {
            enable(&path, names).expect("no file, or a generated one");
            assert_eq!(fs::read_to_string(&path).expect("written"), generated(names));
        }
        assert!(!disable(&path).expect("generated"));
        assert!(!path.exists() && !disable(&path).expect("no file"));
    }

    #[test]
    fn power_file_that_links_to_a_missing_file_stays() {
        let folder = tempfile::tempdir().expect("temporary directory");
        let path = folder.path().join("power.toml");
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &path).expect("writable");
        enable(&path, &["n1"]).expect_err("the link is not replaced");
        disable(&path).expect("nothing to remove");
        assert!(path.is_symlink() && !folder.path().join("elsewhere").exists());
    }
}
