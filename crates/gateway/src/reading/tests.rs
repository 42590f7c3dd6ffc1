//! Tests of valid and invalid descriptions.

use proptest::prelude::*;

use super::*;
use crate::description::EXAMPLE;

/// The example with one replaced text.
fn with(from: &str, to: &str) -> String {
    assert!(EXAMPLE.contains(from), "the example has `{from}`");
    EXAMPLE.replacen(from, to, 1)
}

/// The message for the example with one replaced text, which must cause one mistake.
fn mistake(from: &str, to: &str) -> String {
    let mistakes = read(&with(from, to), None).expect_err(to);
    let [mistake] = mistakes.as_slice() else { panic!("{mistakes:?}") };
    mistake.to_string()
}

#[test]
fn example_is_valid() {
    let description = read(EXAMPLE, None).expect("the example is valid");
    assert_eq!(description.outer, "enp1s0");
    assert_eq!(description.machines.len(), 2);
    assert_eq!(description.nodes.address.to_string(), "10.42.0.1/24");
    let vpn = description.vpn.expect("the example has a VPN");
    assert_eq!((vpn.endpoint, vpn.reach), (("lab.example.org".to_owned(), 51820), vec![Reach::Head, Reach::Nodes]));
}

#[test]
fn example_with_uncommented_fields_is_valid() {
    let is_field =
        |line: &str| line.starts_with('[') || line.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '));
    let lines = EXAMPLE.lines().map(|line| match line.strip_prefix("# ") {
        Some(rest) if is_field(rest) => rest,
        _ => line,
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    let description = read(&text, None).unwrap_or_else(|mistakes| panic!("{mistakes:?}\n{text}"));
    assert!(description.nodes.pool.is_some());
    assert_eq!(description.pxe.expect("uncommented").from, BootServer::At([10, 42, 0, 12].into()));
}

#[test]
fn mistakes_name_line_field_and_remedy() {
    let line = |text: &str| 1 + EXAMPLE.lines().position(|line| line.contains(text)).expect(text);
    assert_eq!(
        mistake("10.42.0.12", "10.42.1.12"),
        format!(
            "line {}: node.address: 10.42.1.12 is not a host address in 10.42.0.0/24; use an address from 10.42.0.1 to 10.42.0.254",
            line("10.42.0.12\"")
        )
    );
    assert_eq!(
        mistake("name = \"r2\"", "name = \"r1\""),
        format!("line {}: node.name: r1 is already used by r1; use each value once", line("name = \"r2\""))
    );
}

#[test]
fn invalid_values_and_conflicts_are_reported() {
    for (from, to, said) in [
        ("52:54:00:00:01:02", "52:54:00:00:02:01", "is already used by the controller of r1"),
        ("52:54:00:00:01:02", "52:54:00:00:01", "is not a MAC address"),
        ("10.42.0.12", "10.42.0.11", "10.42.0.11 is already used by r1"),
        ("10.42.0.12", "10.42.0.1", "the address of this machine"),
        ("10.42.0.12", "10.42.0.255", "not a host address"),
        ("enp2s0", "enp1s0", "is the outer interface as well"),
        ("enp2s0", "hostler-vpn", "the interface of the VPN"),
        ("enp2s0", "en p2", "is not valid"),
        ("10.42.0.1/24", "10.42.0.0/24", "is the network or broadcast address of 10.42.0.0/24"),
        ("10.42.0.1/24", "10.42.0.1/31", "too small"),
        ("10.42.0.1/24", "10.42.0.1", "not an address with a prefix length"),
        ("10.44.0.1/24", "10.42.0.129/25", "overlaps with 10.42.0.0/24 of nodes.address"),
        ("\"nodes\"]", "\"nodes\", \"10.43.0.0/28\"]", "overlaps with 10.43.0.0/24"),
        ("\"nodes\"]", "\"nodes\", \"head\"]", "the same value appears twice"),
        ("\"nodes\"]", "\"everything\"]", "write head, nodes, management, outside or a subnet"),
        ("port = 51820", "port = 0", "a UDP port from 1 to 65535"),
        ("lab.example.org", "lab example", "a name or an address"),
        ("name = \"r2\"", "name = \"head\"", "is already used by this machine"),
        ("name = \"r2\"", "name = \"r1-mgmt\"", "is already used by the controller of r1"),
        ("name = \"r2\"", "name = \"R2\"", "lower-case letters"),
        ("domain = \"cluster\"", "domain = \"a b\"", "a domain in lower case"),
        ("domain = \"cluster\"", "domian = \"cluster\"", "unknown field `domian`"),
        ("# lease = \"12h\"", "lease = \"1m\"", "two minutes or more"),
        ("# pool = \"10.42.0.200-10.42.0.250\"", "pool = \"10.42.0.1-10.42.0.9\"", "the address of this machine"),
        ("# pool = \"10.42.0.200-10.42.0.250\"", "pool = \"10.42.0.12-10.42.0.20\"", "is in the pool"),
        ("# pool = \"10.42.0.200-10.42.0.250\"", "pool = \"10.42.0.30-10.42.0.20\"", "is not a part of"),
        ("management_address = \"10.43.0.11\"", "", "has no address"),
        ("# [pxe]", "[pxe]\nboot_file = \"a\"", "add either server or tftp_root"),
        ("# [pxe]", "[pxe]\nboot_file = \"a,b\"\nserver = \"10.42.0.12\"", "a file name"),
        ("interface = \"enp1s0\"", "", "outer.interface: required, but missing"),
        ("outside = true", "outside = \"yes\"", "nodes.outside: wrong type; write true or false"),
        ("port = 51820", "port = \"51820\"", "vpn.port: wrong type; write a number such as 51820"),
    ] {
        let said_so = mistake(from, to);
        assert!(said_so.contains(said), "{to}: {said_so}");
        assert!(said_so.starts_with("line "), "{to}: {said_so}");
    }
}

#[test]
fn all_mistakes_are_reported_in_order() {
    let text = with("10.42.0.12", "10.42.9.9").replace("enp1s0", "en p1s0").replace("51820", "0");
    let mistakes = read(&text, None).expect_err("three mistakes");
    let fields: Vec<&str> = mistakes.iter().map(|mistake| mistake.field.as_str()).collect();
    assert_eq!(fields, ["outer.interface", "node.address", "vpn.port"]);
    assert!(mistakes.is_sorted_by_key(|mistake| mistake.line));
}

#[test]
fn mistakes_of_every_kind_are_reported_together() {
    let text = with("interface = \"enp1s0\"", "")
        .replace("domain = \"cluster\"", "domian = \"cluster\"")
        .replace("outside = true", "outside = 1")
        .replace("name = \"r1\"", "name = \"R1\"")
        .replace("10.42.0.12", "10.42.9.9")
        .replace("10.44.0.1/24", "10.42.0.1/24")
        .replace("\"nodes\"]", "\"everything\"]");
    let present = ["lo", "enp1s0", "enp2s0"].map(ToOwned::to_owned);
    let mistakes = read(&text, Some(&present)).expect_err("many mistakes");
    let said: Vec<String> = mistakes.iter().map(|it| format!("{}: {}", it.field, it.what)).collect();
    let expected = [
        "outer.interface: required, but missing",
        "nodes: unknown field `domian`",
        "nodes.outside: wrong type",
        "management.interface: this machine has no interface `enp3s0`",
        "node.name: `R1` is not valid",
        "node.address: 10.42.9.9 is not a host address in 10.42.0.0/24",
        "vpn.address: 10.42.0.0/24 overlaps with 10.42.0.0/24 of nodes.address",
        "vpn.reach: `everything`: ",
    ];
    assert_eq!(said.len(), expected.len(), "{said:#?}");
    for (said, expected) in said.iter().zip(expected) {
        assert!(said.starts_with(expected), "{said} is not {expected}");
    }
}

#[test]
fn missing_table_is_one_mistake() {
    let text = EXAMPLE.replace("[outer]\ninterface = \"enp1s0\"", "");
    let mistakes = read(&text, None).expect_err("one mistake");
    let [mistake] = mistakes.as_slice() else { panic!("{mistakes:?}") };
    assert!(mistake.to_string().starts_with("outer: required, but missing; add a table [outer]"), "{mistake}");
    let empty: Vec<String> = read("", None).expect_err("two tables").iter().map(|it| it.field.clone()).collect();
    assert_eq!(empty, ["outer", "nodes"]);
}

#[test]
fn references_to_a_missing_management_network_are_reported() {
    let without = EXAMPLE.replace("[management]\ninterface = \"enp3s0\"\naddress = \"10.43.0.1/24\"", "");
    let without = without.replace("\"nodes\"]", "\"management\"]");
    let said: Vec<String> = read(&without, None).expect_err("two mistakes").iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said.iter().all(|said| said.contains("there is no management network")), "{said:?}");
}

#[test]
fn missing_interface_is_reported() {
    let present = ["lo", "enp1s0", "enp2s0"].map(ToOwned::to_owned);
    let mistakes = read(EXAMPLE, Some(&present)).expect_err("one mistake");
    let said: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
    let [said] = said.as_slice() else { panic!("{said:?}") };
    assert!(
        said.ends_with(
            "management.interface: this machine has no interface `enp3s0`; available interfaces: enp1s0, enp2s0"
        ),
        "{said}"
    );
}

proptest! {
    /// Any input yields a description, or mistakes with existing lines.
    #[test]
    fn reader_never_panics(at in 0..EXAMPLE.len(), length in 0_usize..20, new in "[ -~\\n]{0,12}") {
        prop_assume!(EXAMPLE.is_char_boundary(at) && EXAMPLE.is_char_boundary((at + length).min(EXAMPLE.len())));
        let mut text = EXAMPLE.to_owned();
        text.replace_range(at..(at + length).min(EXAMPLE.len()), &new);
        if let Err(mistakes) = read(&text, None) {
            prop_assert!(!mistakes.is_empty());
            let lines = text.lines().count() + 1;
            for mistake in mistakes {
                prop_assert!(mistake.line.is_none_or(|line| (1..=lines).contains(&line)), "{mistake}");
                prop_assert!(!mistake.what.is_empty());
            }
        }
    }
}
