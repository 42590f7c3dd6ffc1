//! Packet rules of other programs that would drop the gateway's packets. In `nft`, a drop in any chain is final.

use serde::Serialize;
use serde_json::Value;

use crate::names::TABLE;

/// A chain of another program that drops packets by default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Obstacle {
    /// The chain, e.g. `ip filter FORWARD`.
    pub chain: String,
    /// Whether the chain filters forwarded packets; otherwise it filters packets to this machine.
    pub forward: bool,
}

/// Finds obstacles in the output of `nft -j list ruleset`. A chain with a final drop rule counts like one with the
/// policy drop.
#[must_use]
pub fn obstacles(ruleset: &Value) -> Vec<Obstacle> {
    let objects = ruleset["nftables"].as_array().map(Vec::as_slice).unwrap_or_default();
    let chains = objects.iter().map(|object| &object["chain"]).filter(|chain| chain.is_object());
    let is_obstacle = |chain: &&Value| {
        let is_ours = chain["family"] == "inet" && chain["table"] == TABLE;
        let is_at_hook = ["forward", "input"].iter().any(|hook| chain["hook"] == *hook) && chain["type"] == "filter";
        let is_ipv4 = ["ip", "inet"].iter().any(|family| chain["family"] == *family);
        is_at_hook && is_ipv4 && !is_ours && (chain["policy"] == "drop" || ends_in_a_drop(chain, objects))
    };
    let obstacle = |chain: &Value| Obstacle {
        chain: ["family", "table", "name"].map(|key| chain[key].as_str().unwrap_or("?").to_owned()).join(" "),
        forward: chain["hook"] == "forward",
    };
    chains.filter(is_obstacle).map(obstacle).collect()
}

/// Whether the last rule of a chain drops or rejects all remaining packets.
fn ends_in_a_drop(chain: &Value, objects: &[Value]) -> bool {
    let is_in_it = |rule: &&Value| {
        ["family", "table"].iter().all(|key| rule[key] == chain[key])
            && rule["chain"] == chain["name"]
            && rule.is_object()
    };
    let Some(last) = objects.iter().map(|object| &object["rule"]).rfind(is_in_it) else { return false };
    let all = last["expr"].as_array().map(Vec::as_slice).unwrap_or_default();
    let has = |part: &Value, words: &[&str]| {
        part.as_object().is_some_and(|part| part.keys().all(|key| words.contains(&key.as_str())))
    };
    let (verdict, before) = match all.split_last() {
        Some((verdict, before)) => (verdict, before),
        None => return false,
    };
    has(verdict, &["drop", "reject"]) && before.iter().all(|part| has(part, &["counter", "log", "limit"]))
}

impl Obstacle {
    /// Commands that make the chain accept the gateway's packets.
    #[must_use]
    pub fn remedy(&self, nodes: &str, vpn_port: Option<u16>) -> Vec<String> {
        let insert = |rule: &str| format!("nft insert rule {} {rule}", self.chain);
        if self.forward {
            return vec![
                insert(&format!("iifname \"{nodes}\" accept")),
                insert(&format!("oifname \"{nodes}\" ct state established,related accept")),
            ];
        }
        let mut rules = vec![
            insert(&format!("iifname \"{nodes}\" udp dport '{{ 53, 67 }}' accept")),
            insert(&format!("iifname \"{nodes}\" tcp dport '{{ 22, 53, 7760 }}' accept")),
        ];
        rules.extend(vpn_port.map(|port| insert(&format!("udp dport {port} accept"))));
        rules
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn dropping_chains_are_found() {
        let chain = |family: &str, table: &str, name: &str, hook: &str, policy: &str| json!({ "chain": { "family": family, "table": table, "name": name, "type": "filter", "hook": hook, "policy": policy } });
        let rule = |chain: &str, expr: Value| json!({ "rule": { "family": "inet", "table": "fw", "chain": chain, "expr": expr } });
        let ruleset = json!({ "nftables": [
            { "metainfo": {} },
            chain("ip", "filter", "FORWARD", "forward", "drop"),
            chain("ip", "filter", "OUTPUT", "output", "drop"),
            chain("ip6", "filter", "FORWARD", "forward", "drop"),
            chain("inet", TABLE, "forward", "forward", "drop"),
            chain("inet", "fw", "in", "input", "accept"),
            chain("inet", "fw", "through", "forward", "accept"),
            { "chain": { "family": "inet", "table": "fw", "name": "plain" } },
            rule("in", json!([{ "match": {} }, { "accept": null }])),
            rule("in", json!([{ "counter": {} }, { "reject": {} }])),
            rule("through", json!([{ "match": {} }, { "drop": null }])),
        ]});
        let found = obstacles(&ruleset);
        let names: Vec<&str> = found.iter().map(|obstacle| obstacle.chain.as_str()).collect();
        assert_eq!(names, ["ip filter FORWARD", "inet fw in"]);
        assert_eq!(found[0].remedy("eth1", None)[0], "nft insert rule ip filter FORWARD iifname \"eth1\" accept");
        assert!(found[1].remedy("eth1", Some(7)).contains(&"nft insert rule inet fw in udp dport 7 accept".to_owned()));
        assert_eq!(obstacles(&json!(null)), []);
    }
}
