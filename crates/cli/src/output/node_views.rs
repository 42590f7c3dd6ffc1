//! Text views of nodes.

use hostler_model::{Gauge, NodeName, NodeState, Supply, Watts, format_bytes, format_ms, plural};
use hostler_proto::api::{CertificateView, GpuView, NodeDetail, NodeView};
use hostler_proto::power::{Cost, EnergyView, PowerView};

use super::table::{Align, Table};
use super::text::{Lines, Moment, held_gpus, kwh, words};

pub fn node_list(nodes: &[NodeView], width: Option<usize>) -> String {
    // Columns that would be the same for all nodes are left out.
    let has_partitions = nodes.iter().any(|node| !node.partitions.is_empty());
    let has_counted = nodes.iter().any(|node| !node.counted.is_empty());
    let has_features = nodes.windows(2).any(|pair| pair[0].features != pair[1].features);
    let has_kept = nodes.iter().any(|node| node.kept_for.is_some());
    let has_addresses = nodes.windows(2).any(|pair| pair[0].address != pair[1].address);
    let mut columns = vec![
        ("NAME", Align::Left),
        ("STATE", Align::Left),
        ("POWER", Align::Left),
        ("CPUS", Align::Right),
        ("CPUS FREE", Align::Right),
        ("MEMORY", Align::Right),
        ("MEMORY FREE", Align::Right),
        ("GPUS", Align::Right),
        ("GPUS FREE", Align::Right),
        ("TASKS", Align::Right),
        ("PID", Align::Right),
        ("VERSION", Align::Left),
    ];
    columns.extend(has_addresses.then_some(("ADDRESS", Align::Left)));
    columns.extend(has_counted.then_some(("RESOURCES", Align::Left)));
    columns.extend(has_partitions.then_some(("PARTITIONS", Align::Left)));
    columns.extend(has_features.then_some(("FEATURES", Align::Left)));
    columns.extend(has_kept.then_some(("KEPT FOR", Align::Left)));
    let mut table = Table::new(&columns);
    for node in nodes {
        // A node that is down has no usable resources.
        let free = |text: String| if node.state == NodeState::Down { "-".to_owned() } else { text };
        let cells = [
            node.name.to_string(),
            node.state.as_str().to_owned(),
            node.power.clone(),
            node.cpus.to_string(),
            free(node.cpus_free.to_string()),
            format_bytes(node.memory_bytes),
            free(format_bytes(node.memory_free_bytes)),
            node.gpus.to_string(),
            free(node.gpus_free.to_string()),
            node.tasks.to_string(),
            if node.agent_pid == 0 { "-".to_owned() } else { node.agent_pid.to_string() },
            node.version.clone(),
        ];
        let address = has_addresses.then(|| node.address.map_or_else(|| "-".to_owned(), |address| address.to_string()));
        let partitions = has_partitions.then(|| words(&node.partitions));
        let features = has_features.then(|| words(&node.features));
        let counted = has_counted.then(|| counted_cell(node));
        let kept = has_kept.then(|| node.kept_for.map_or_else(|| "-".to_owned(), |job| format!("job {job}")));
        table.row(cells.into_iter().chain(address).chain(counted).chain(partitions).chain(features).chain(kept));
    }
    let has_gpus = nodes.iter().any(|node| node.gpus > 0);
    let table = if has_gpus { table } else { table.without(&[7, 8]) };
    table.render(width)
}

/// A note about nodes of one machine that use the same CPUs, if there are any.
pub fn shared_cpus(nodes: &[NodeView]) -> Option<String> {
    let shared: Vec<&str> = nodes.iter().filter(|node| node.shares_cpus).map(|node| node.name.as_str()).collect();
    let which = match shared.len() {
        0 => return None,
        all if all == nodes.len() => "nodes".to_owned(),
        _ => words(&shared),
    };
    Some(format!(
        "{which} share CPUs with other nodes of their machine, so jobs on different nodes may slow each other down"
    ))
}

/// The resources of a node in a table, e.g. `camera 1/1,license 8/10`, or `-`.
fn counted_cell(node: &NodeView) -> String {
    let of = |(name, count)| format!("{name} {}/{count}", node.counted_free.count(name));
    words(&node.counted.iter().map(of).collect::<Vec<_>>())
}

pub(crate) fn node(detail: &NodeDetail, moment: &Moment) -> String {
    let node = &detail.node;
    let mut lines = Lines::default();
    lines.add("node", node.name.as_str());
    lines.add("state", state(detail));
    lines.add_some("address", node.address.map(|address| address.to_string()));
    if let Some(drain) = &detail.drain {
        let reason = drain.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
        lines.add("drained", format!("by {} at {}{reason}", drain.by, moment.date(drain.at)));
    }
    let shared = if node.shares_cpus { "; other nodes of the machine use them too" } else { "" };
    lines.add_some("kept for", node.kept_for.map(|job| format!("job {job}; `hostler why {job}` says until when")));
    lines.add("cpus", format!("{} of {} free ({}{shared})", node.cpus_free, node.cpus, detail.cpu_ids));
    let (free, all) = (format_bytes(node.memory_free_bytes), format_bytes(node.memory_bytes));
    lines.add("memory", format!("{free} of {all} free"));
    let offer = &detail.offer;
    let amounts = [
        offer.cpus.map(|cpus| plural(cpus, "CPU")),
        offer.memory_bytes.map(|bytes| format!("{} of memory", format_bytes(bytes))),
        offer.gpus.map(|gpus| plural(gpus, "GPU")),
    ];
    let counted = offer.counted.iter().map(|(name, count)| format!("{name}={count}"));
    let amounts: Vec<String> = amounts.into_iter().flatten().chain(counted).collect();
    lines.add_some(
        "offers",
        (!offer.is_all()).then(|| format!("at most {}, as an operator has set", amounts.join(", "))),
    );
    lines.add_some("gpus", (node.gpus > 0).then(|| format!("{} of {} free", node.gpus_free, node.gpus)));
    lines.add_some("resources", super::text::counted(node.counted.iter(), |name| node.counted_free.count(name)));
    detail.gpu_list.iter().for_each(|gpu| lines.add("gpu", self::gpu(gpu)));
    lines.add_some("partitions", (!node.partitions.is_empty()).then(|| words(&node.partitions)));
    lines.add_some("features", (!node.features.is_empty()).then(|| words(&node.features)));
    lines.add_some("weight", (node.weight != 0).then(|| node.weight.to_string()));
    let advisory = &node.advisory;
    lines.add_some("advisory", advisory.cpus.as_ref().map(|why| format!("CPUs: {why}")));
    lines.add_some("advisory", advisory.memory.as_ref().map(|why| format!("memory: {why}")));
    lines.add_some("advisory", advisory.gpus.as_ref().map(|why| format!("GPUs: {why}")));
    lines.add_some("advisory", advisory.users.as_ref().map(|why| format!("users: {why}")));
    lines.add_some(
        "root",
        advisory.refuses_root.then_some("jobs of root do not run here: the agent was started without --root-jobs"),
    );
    lines.add_some("sandbox", advisory.sandbox.as_ref().map(|why| format!("no sandboxed jobs run here: {why}")));
    let is_alone = advisory.job_network.as_ref().filter(|_| advisory.sandbox.is_none());
    lines.add_some("sandbox", is_alone.map(|why| format!("no jobs with --network job: {why}")));
    if !node.version.is_empty() {
        lines.add("agent", format!("version {}, pid {}", node.version, node.agent_pid));
    }
    if let Some(power) = &detail.power_detail {
        lines.add("power", power_line(power));
        lines.add_some("", power.fault.clone());
        lines.add("energy", energy_line(power));
    }
    lines.add_some("key", detail.certificate.as_ref().map(certificate));
    for run in &detail.runs {
        let memory = format_bytes(run.memory_bytes);
        let gpus = held_gpus(&run.gpu_ids).map_or_else(String::new, |ids| format!(" and {ids}"));
        let counted = if run.counted.is_empty() { String::new() } else { format!(" and {}", run.counted) };
        let (job, index, cpus) = (run.job, run.index, &run.cpu_ids);
        lines.add("task", format!("{job}_{index} on CPUs {cpus} with {memory} of memory{gpus}{counted}"));
    }
    lines.into_text()
}

/// Formats a GPU, e.g. `GPU-5d8f…, NVIDIA A100, 40G, NUMA node 1, used by 7_0`.
fn gpu(gpu: &GpuView) -> String {
    let mut words = vec![gpu.id.to_string()];
    words.extend((!gpu.name.is_empty()).then(|| gpu.name.clone()));
    words.extend(gpu.memory_bytes.map(format_bytes));
    words.extend(gpu.numa.map(|numa| format!("NUMA node {numa}")));
    words.push(gpu.held_by.map_or_else(|| "free".to_owned(), |task| format!("used by {task}")));
    words.join(", ")
}

fn state(detail: &NodeDetail) -> String {
    let state = detail.node.state.as_str();
    match detail.silent_ms {
        0 => state.to_owned(),
        _ if matches!(detail.node.state, NodeState::Off | NodeState::Waking | NodeState::Stopping) => state.to_owned(),
        silent => format!("{state}, no message for {}", format_ms(silent)),
    }
}

pub(crate) fn power(name: &NodeName, power: &PowerView) -> String {
    let mut lines = Lines::default();
    lines.add("node", name.to_string());
    lines.add("power", power_line(power));
    lines.add_some("fault", power.fault.clone());
    let supply = match (power.supply, power.supply_age_ms) {
        (Some(supply), Some(age)) => {
            let supply = if supply == Supply::On { "on" } else { "off" };
            format!("reported {supply} {} ago", format_ms(age))
        }
        _ => "no answer since the head started".to_owned(),
    };
    lines.add("controller", supply);
    lines.into_text()
}

/// Formats the power state of a node, e.g. `idle for 5m12s: its agent connected after 3m40s; boot takes 4m`.
fn power_line(power: &PowerView) -> String {
    let boot = match power.boots {
        0 => format!("boot takes about {} (not measured)", format_ms(power.boot_ms)),
        _ => format!("boot takes {}", format_ms(power.boot_ms)),
    };
    format!("{} for {}: {}; {boot}", power.state.as_str(), format_ms(power.for_ms), power.why)
}

/// Formats the power use of a node, e.g. `90 W; 1.2 kWh drawn, 3.4 kWh saved; switched on 7 times`.
fn energy_line(power: &PowerView) -> String {
    let saved = power.always_on_watt_hours.saturating_sub(power.watt_hours);
    let starts = if power.starts == 1 { "once".to_owned() } else { format!("{} times", power.starts) };
    let measured = match power.gauge {
        Some(Gauge::Controller) => " (measured by the controller)",
        Some(Gauge::Agent) => " (measured by the processors)",
        None if power.are_watts_assumed => " (assumed: power.toml has no `watts`)",
        None => " (estimated from power.toml)",
    };
    format!("{} W{measured}; {} drawn, {} saved; switched on {starts}", power.watts, kwh(power.watt_hours), kwh(saved))
}

/// Power use of the nodes, with totals.
pub(crate) fn energy(energy: &EnergyView, width: Option<usize>) -> String {
    let right = ["NOW", "DRAWN", "SAVED", "OFF", "STARTS", "BOOT"].map(|name| (name, Align::Right));
    let mut table = Table::new(&[&[("NAME", Align::Left), ("POWER", Align::Left)], &right[..]].concat());
    for (name, power) in &energy.nodes {
        table.row([
            name.to_string(),
            power.state.as_str().to_owned(),
            format!("{}{} W", if power.gauge.is_none() { "~" } else { "" }, power.watts),
            exact_kwh(power.watt_hours),
            exact_kwh(power.always_on_watt_hours.saturating_sub(power.watt_hours)),
            format_ms(power.off_ms),
            power.starts.to_string(),
            format_ms(power.boot_ms),
        ]);
    }
    if energy.nodes.len() > 1 {
        table.row([
            "all".to_owned(),
            String::new(),
            format!("{} W", energy.watts),
            exact_kwh(energy.watt_hours),
            exact_kwh(energy.saved_watt_hours),
            String::new(),
            energy.nodes.values().map(|power| power.starts).sum::<u64>().to_string(),
            String::new(),
        ]);
    }
    let cost = |cost: &Option<Cost>| cost.as_ref().map_or_else(String::new, ToString::to_string);
    let costs =
        energy.cost.as_ref().map(|_| format!("{} drawn, {} saved\n", cost(&energy.cost), cost(&energy.saved_cost)));
    format!("{}\n{}{}", table.render(width), costs.unwrap_or_default(), basis(energy))
}

/// A sentence that says which values are measured and which are estimated.
fn basis(energy: &EnergyView) -> String {
    let is_estimated = |power: &PowerView| power.gauge.is_none() || power.measured_watt_hours < power.watt_hours;
    let estimated = energy.nodes.iter().filter(|(_, power)| is_estimated(power));
    let (assumed, given): (Vec<_>, Vec<_>) = estimated.partition(|(_, power)| power.are_watts_assumed);
    let measured = energy.measured_watt_hours;
    if assumed.is_empty() && given.is_empty() {
        return "all values are measured".to_owned();
    }
    let names = |nodes: &[(&NodeName, &PowerView)]| {
        nodes.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>().join(", ")
    };
    let mut parts = Vec::new();
    parts.extend((measured > 0).then(|| format!("{} of the energy is measured", exact_kwh(measured))));
    parts.extend((!given.is_empty()).then(|| format!("{} estimated from power.toml", names(&given))));
    let usual = Watts::default();
    parts.extend((!assumed.is_empty()).then(|| {
        format!(
            "{} estimated with {} W off, {} W idle and {} W busy, because power.toml has no `watts`",
            names(&assumed),
            usual.off,
            usual.idle,
            usual.busy
        )
    }));
    parts.join("; ")
}

/// Energy in kWh with all digits, so that columns add up.
fn exact_kwh(watt_hours: u64) -> String {
    format!("{}.{:03} kWh", watt_hours / 1_000, watt_hours % 1_000)
}

fn certificate(certificate: &CertificateView) -> String {
    let [age, life] = [certificate.age_ms, certificate.life_ms].map(format_ms);
    let renewal = if certificate.is_being_renewed { ", replacement issued" } else { "" };
    format!("certificate issued {age} ago, valid for {life}{renewal}")
}

#[cfg(test)]
mod tests {
    use hostler_model::{Advisory, Counted};

    use super::*;

    #[test]
    fn nodes_that_share_cpus_are_named() {
        let node = |name: &str, shares_cpus| {
            let view = serde_json::json!({
                "name": name, "state": "up", "power": "on", "cpus": 1, "cpus_free": 1, "memory_bytes": 1,
                "memory_free_bytes": 1, "tasks": 0, "agent_pid": 1, "version": "0.1.0", "shares_cpus": shares_cpus,
            });
            serde_json::from_value::<NodeView>(view).expect("an older head sends less")
        };
        let said = |shared: &[bool]| {
            let names = ["n1", "n2", "n3"].into_iter().zip(shared);
            shared_cpus(&names.map(|(name, shares)| node(name, *shares)).collect::<Vec<_>>())
        };
        let starts = |shared: &[bool], with: &str| said(shared).expect("a note").starts_with(with);
        assert_eq!((said(&[]), said(&[false, false])), (None, None));
        assert!(starts(&[true, false, true], "n1,n3 share CPUs with"));
        assert!(starts(&[true, true], "nodes share CPUs with"));
    }

    #[test]
    fn optional_columns_appear_if_a_node_needs_them() {
        let node = NodeView {
            name: "n1".parse().expect("a name"),
            state: NodeState::Up,
            reason: None,
            power: "on".to_owned(),
            cpus: 4,
            cpus_free: 1,
            memory_bytes: 4 << 30,
            memory_free_bytes: 1 << 30,
            gpus: 0,
            gpus_free: 0,
            counted: Counted::NONE,
            counted_free: Counted::NONE,
            tasks: 3,
            address: None,
            agent_pid: 4711,
            version: "0.1.0".to_owned(),
            advisory: Advisory::default(),
            shares_cpus: false,
            partitions: Vec::new(),
            features: ["x86_64".parse().expect("a feature")].into(),
            weight: 0,
            since: None,
            why: None,
            kept_for: None,
            holders: None,
            measured: None,
        };
        let expected = "\
NAME  STATE  POWER  CPUS  CPUS FREE  MEMORY  MEMORY FREE  TASKS   PID  VERSION
n1    up     on        4          1      4G           1G      3  4711  0.1.0
";
        assert_eq!(node_list(std::slice::from_ref(&node), None), expected);
        let down = NodeView { state: NodeState::Down, ..node.clone() };
        assert!(node_list(&[down], None).contains("n1    down   on        4          -      4G            -      3"));
        let other = NodeView {
            name: "n2".parse().expect("a name"),
            partitions: ["gpu", "all"].map(|name| name.parse().expect("a name")).to_vec(),
            features: Default::default(),
            ..node.clone()
        };
        let expected = "\
NAME  STATE  POWER  CPUS  CPUS FREE  MEMORY  MEMORY FREE  TASKS   PID  VERSION  PARTITIONS  FEATURES
n1    up     on        4          1      4G           1G      3  4711  0.1.0    -           x86_64
n2    up     on        4          1      4G           1G      3  4711  0.1.0    gpu,all     -
";
        assert_eq!(node_list(&[node.clone(), other], None), expected);
        let expected = "\
NAME  STATE  POWER  CPUS  CPUS FREE  MEMORY  MEMORY FREE  GPUS  GPUS FREE  TASKS   PID  VERSION
n1    up     on        4          1      4G           1G     4          3      3  4711  0.1.0
";
        assert_eq!(node_list(&[NodeView { gpus: 4, gpus_free: 3, ..node.clone() }], None), expected);
        let expected = "\
NAME  STATE  POWER  CPUS  CPUS FREE  MEMORY  MEMORY FREE  TASKS   PID  VERSION  KEPT FOR
n1    up     on        4          1      4G           1G      3  4711  0.1.0    job 7
";
        assert_eq!(node_list(&[NodeView { kept_for: Some(hostler_model::JobId(7)), ..node.clone() }], None), expected);
        let expected = "\
NAME  STATE  POWER  CPUS  CPUS FREE  MEMORY  MEMORY FREE  TASKS   PID  VERSION  RESOURCES
n1    up     on        4          1      4G           1G      3  4711  0.1.0    camera 0/1,license 8/10
";
        let some = |text: &str| text.parse::<Counted>().expect("counts");
        let (counted, counted_free) = (some("license=10,camera"), some("license=8"));
        assert_eq!(node_list(&[NodeView { counted, counted_free, ..node }], None), expected);
    }

    fn drawn(watt_hours: u64, measured_watt_hours: u64, are_watts_assumed: bool) -> PowerView {
        PowerView {
            state: hostler_model::PowerState::Off,
            for_ms: 1,
            since: hostler_model::WallTime(1),
            why: String::new(),
            supply: None,
            supply_age_ms: None,
            fault: None,
            boot_ms: 60_000,
            boots: 1,
            starts: 2,
            failures: 0,
            watts: 8,
            gauge: (measured_watt_hours == watt_hours).then_some(Gauge::Controller),
            are_watts_assumed,
            watt_hours,
            measured_watt_hours,
            always_on_watt_hours: 2 * watt_hours,
            off_ms: 1_000,
        }
    }

    #[test]
    fn energy_table_adds_up_and_names_estimates() {
        let nodes = [("n1", drawn(1_460, 1_460, true)), ("n2", drawn(1_460, 0, true)), ("n3", drawn(460, 60, false))];
        let view = EnergyView {
            nodes: nodes.into_iter().map(|(name, power)| (name.parse().expect("a name"), power)).collect(),
            watts: 24,
            watt_hours: 3_380,
            measured_watt_hours: 1_520,
            saved_watt_hours: 3_380,
            ..EnergyView::default()
        };
        let expected = "\
NAME  POWER   NOW      DRAWN      SAVED   OFF  STARTS   BOOT
n1    off     8 W  1.460 kWh  1.460 kWh  1.0s       2  1m00s
n2    off    ~8 W  1.460 kWh  1.460 kWh  1.0s       2  1m00s
n3    off    ~8 W  0.460 kWh  0.460 kWh  1.0s       2  1m00s
all          24 W  3.380 kWh  3.380 kWh             6

1.520 kWh of the energy is measured; n3 estimated from power.toml; \
n2 estimated with 8 W off, 90 W idle and 200 W busy, because power.toml has no `watts`";
        assert_eq!(energy(&view, None), expected);
        let cost = |amount| Some(Cost { amount, currency: "EUR".to_owned() });
        let priced = EnergyView { cost: cost(1.0478), saved_cost: cost(0.5), ..view };
        assert!(energy(&priced, None).contains("\n1.05 EUR drawn, 0.50 EUR saved\n1.520 kWh"));
    }
}
