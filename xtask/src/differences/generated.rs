//! Generated command lines: options of each command in all forms, with good and bad values, from a fixed seed.
//!
//! Lines of `sbatch` name a partition that does not exist, so a line that the parser accepts is refused afterwards, with
//! the same text on both clusters. Otherwise a line has at most one mistake, because nobody relies on which of several a
//! command names.

/// An option: its long name, its short name or a blank, and the values to try. Without values, it takes none. The first two
/// values are usual ones, which most options accept.
type Opt = (&'static str, char, &'static [&'static str]);

const NUMBERS: &[&str] = &["1", "2", "0", "-1", "x", "", "1x", "1.5", "99999999999", "+3", "4k", " 2"];
const RANGES: &[&str] = &["1", "1-2", "2-1", "0", "x", "1-x", "-1", "", "1k", "1-2-3", "1,2"];
const SIZES: &[&str] = &["100", "10M", "1g", "5Q", "x", "0", "-1", "", "1.5G", "10MB", "99999999999999999999"];
const TIMES: &[&str] = &["1", "1:00", "1-0", "1-2:3", "0", "x", "", "1:2:3:4", "-5", "UNLIMITED", "1-x", "1:", "5m"];
const TEXTS: &[&str] = &["a", "two words", "", "a,b", "x=y"];
const NODES: &[&str] = &["n1", "n2", "n[1-2]", "n9", "n[1-", "n1,n2", "n[2-1]", ""];
const COUNTED: &[&str] = &["1", "a:1", "a:b:1", "0", "x:y:z", "", "-1", "gpu:1"];
const WORDS: &[&str] = &["none", "verbose", "x", "", "block", "cyclic", "yes", "no"];
const STATES: &[&str] = &["R", "PD", "RUNNING", "pending", "all", "bogus", "R,PD", "CD", "", "r,x", "F", "TO", "CG"];
const IDS: &[&str] = &["1", "99999", "x", "1_2", "1_[1-3]", "1,2", "", "0", "-1", "1.0", "1_x", "1_[", "1+1"];
const MOMENTS: &[&str] =
    &["2026-01-01", "2026-01-01T10:00:00", "now", "now-1hour", "10:00", "x", "", "tomorrow", "noon"];

const SBATCH: &[Opt] = &[
    ("account", 'A', TEXTS),
    ("array", 'a', &["1", "1-3", "1-3%2", "1,5", "x", "3-1", "", "1-10:2", "-1", "1-3%0", "1-x", "5000000"]),
    (
        "begin",
        'b',
        &["now", "now+1hour", "now+90", "16:00", "tomorrow", "x", "", "2030-01-01", "2030-01-01T00:00", "now+x"],
    ),
    ("chdir", 'D', &["/tmp", "x", ""]),
    ("comment", ' ', TEXTS),
    ("constraint", 'C', TEXTS),
    ("contiguous", ' ', &[]),
    ("core-spec", 'S', NUMBERS),
    ("cpus-per-gpu", ' ', NUMBERS),
    ("cpus-per-task", 'c', NUMBERS),
    ("deadline", ' ', &["2030-01-01", "now+2hours", "now-1hour", "x", "", "tomorrow"]),
    ("delay-boot", ' ', NUMBERS),
    ("distribution", 'm', WORDS),
    ("error", 'e', TEXTS),
    ("exclude", 'x', NODES),
    ("exclusive", ' ', &[]),
    ("export", ' ', &["ALL", "NONE", "A=1", "A,B", "", "ALL,A=1"]),
    ("extra-node-info", 'B', NUMBERS),
    ("get-user-env", ' ', &[]),
    ("gpus", 'G', COUNTED),
    ("gpus-per-node", ' ', COUNTED),
    ("gpus-per-task", ' ', COUNTED),
    ("gres", ' ', COUNTED),
    ("hint", ' ', &["nomultithread", "compute_bound", "x", ""]),
    ("hold", 'H', &[]),
    ("input", 'i', TEXTS),
    ("job-name", 'J', TEXTS),
    ("kill-on-invalid-dep", ' ', WORDS),
    ("licenses", 'L', TEXTS),
    ("mail-type", ' ', &["ALL", "END", "x", "", "BEGIN,END", "NONE", "fail"]),
    ("mail-user", ' ', TEXTS),
    ("mem", ' ', SIZES),
    ("mem-bind", ' ', WORDS),
    ("mem-per-cpu", ' ', SIZES),
    ("mem-per-gpu", ' ', SIZES),
    ("mincpus", ' ', NUMBERS),
    ("nice", ' ', &[]),
    ("no-kill", 'k', &[]),
    ("no-requeue", ' ', &[]),
    ("nodelist", 'w', NODES),
    ("nodes", 'N', RANGES),
    ("ntasks", 'n', NUMBERS),
    ("ntasks-per-core", ' ', NUMBERS),
    ("ntasks-per-gpu", ' ', NUMBERS),
    ("ntasks-per-node", ' ', NUMBERS),
    ("ntasks-per-socket", ' ', NUMBERS),
    ("open-mode", ' ', &["append", "truncate", "a", "t", "x", "", "A", "app"]),
    ("output", 'o', TEXTS),
    ("overcommit", 'O', &[]),
    ("oversubscribe", 's', &[]),
    ("parsable", ' ', &[]),
    ("priority", ' ', &["1", "0", "TOP", "x", "", "-1", "99999999999"]),
    ("profile", ' ', &["none", "task", "x", ""]),
    ("qos", 'q', TEXTS),
    ("quiet", 'Q', &[]),
    ("reboot", ' ', &[]),
    ("requeue", ' ', &[]),
    ("reservation", ' ', TEXTS),
    ("signal", ' ', &["USR1", "B:USR1@60", "10", "R:10@5", "x", "", "USR1@x", "@5", "99", "USR1@70000"]),
    ("sockets-per-node", ' ', NUMBERS),
    ("spread-job", ' ', &[]),
    ("switches", ' ', NUMBERS),
    ("thread-spec", ' ', NUMBERS),
    ("threads-per-core", ' ', NUMBERS),
    ("time", 't', TIMES),
    ("time-min", ' ', TIMES),
    ("tmp", ' ', SIZES),
    ("use-min-nodes", ' ', &[]),
    ("wait-all-nodes", ' ', NUMBERS),
    ("wckey", ' ', TEXTS),
];

const SQUEUE: &[Opt] = &[
    ("account", 'A', TEXTS),
    ("all", 'a', &[]),
    ("array", 'r', &[]),
    ("Format", 'O', &["jobid", "jobid:5", "x", "", "jobid,name", "JobID:-3", "jobid:x", "state:.9"]),
    ("format", 'o', &["%i", "%.5i", "%Q", "%", "x", "", "%5", "%i %j", "%.x"]),
    ("hide", ' ', &[]),
    ("jobs", 'j', IDS),
    ("licenses", 'L', TEXTS),
    ("long", 'l', &[]),
    ("me", ' ', &[]),
    ("name", 'n', TEXTS),
    ("noconvert", ' ', &[]),
    ("nodelist", 'w', NODES),
    ("noheader", 'h', &[]),
    ("partition", 'p', &["all", "x", "", "all,x"]),
    ("priority", 'P', &[]),
    ("qos", 'q', TEXTS),
    ("reservation", 'R', TEXTS),
    ("sort", 'S', &["i", "-i", "+i", "x", "", "i,-j", "P,t", "S,Q", "!"]),
    ("start", ' ', &[]),
    ("states", 't', STATES),
    ("user", 'u', &["root", "0", "x", "", "root,x", "nobody"]),
    ("verbose", 'v', &[]),
];

const SCANCEL: &[Opt] = &[
    ("account", 'A', TEXTS),
    ("batch", 'b', &[]),
    ("ctld", ' ', &[]),
    ("full", 'f', &[]),
    ("hurry", 'H', &[]),
    ("name", 'n', TEXTS),
    ("me", ' ', &[]),
    ("nodelist", 'w', NODES),
    ("partition", 'p', &["all", "x", ""]),
    ("qos", 'q', TEXTS),
    ("quiet", 'Q', &[]),
    ("reservation", 'R', TEXTS),
    ("signal", 's', &["TERM", "SIGTERM", "9", "x", "", "0", "64", "65", "usr1", "-9"]),
    ("state", 't', STATES),
    ("user", 'u', &["root", "0", "x", "", "nobody"]),
    ("verbose", 'v', &[]),
    ("wckey", ' ', TEXTS),
];

const SACCT: &[Opt] = &[
    ("accounts", 'A', TEXTS),
    ("allocations", 'X', &[]),
    ("allusers", 'a', &[]),
    ("brief", 'b', &[]),
    ("delimiter", ' ', &["+", "", "ab", "|"]),
    ("duplicates", 'D', &[]),
    ("endtime", 'E', MOMENTS),
    ("format", 'o', &["jobid", "JobID%5", "x", "", "jobid,state", "jobid%-5", "job", "jobid%x", "Elap"]),
    ("gid", 'g', &["0", "root", "x", "", "-1"]),
    ("jobs", 'j', IDS),
    ("long", 'l', &[]),
    ("name", ' ', TEXTS),
    ("ncpus", 'I', RANGES),
    ("nnodes", 'i', RANGES),
    ("noconvert", ' ', &[]),
    ("nodelist", 'N', NODES),
    ("noheader", 'n', &[]),
    ("parsable", 'p', &[]),
    ("parsable2", 'P', &[]),
    ("partition", 'r', &["all", "x", ""]),
    ("qos", 'q', TEXTS),
    ("starttime", 'S', MOMENTS),
    ("state", 's', STATES),
    ("truncate", 'T', &[]),
    ("timelimit-max", 'K', TIMES),
    ("timelimit-min", 'k', TIMES),
    ("units", ' ', &["M", "K", "x", "", "MB", "g"]),
    ("user", 'u', &["root", "0", "x", "", "nobody"]),
    ("wckeys", 'W', TEXTS),
];

const SINFO: &[Opt] = &[
    ("all", 'a', &[]),
    ("dead", 'd', &[]),
    ("exact", 'e', &[]),
    ("Format", 'O', &["nodelist", "nodelist:5", "x", "", "partition,cpus", "nodehost:-3", "cpus:x"]),
    ("format", 'o', &["%N", "%.5N", "%P", "%", "x", "", "%5", "%N %t", "%q"]),
    ("hide", ' ', &[]),
    ("list-reasons", 'R', &[]),
    ("long", 'l', &[]),
    ("Node", 'N', &[]),
    ("nodes", 'n', NODES),
    ("noheader", 'h', &[]),
    ("partition", 'p', &["all", "x", ""]),
    ("responding", 'r', &[]),
    ("sort", 'S', &["N", "-N", "+P", "x", "", "N,-P", "!"]),
    ("states", 't', &["idle", "IDLE", "down", "bogus", "", "idle,down", "all", "alloc,x", "drain", "i"]),
    ("summarize", 's', &[]),
    ("verbose", 'v', &[]),
];

/// A command whose lines are generated.
struct Command {
    name: &'static str,
    options: &'static [Opt],
    /// The share of its lines, in percent.
    share: u64,
    /// What may follow the options.
    ends: &'static [&'static str],
    /// What may follow the options, and is a mistake.
    wrong_ends: &'static [&'static str],
}

const COMMANDS: [Command; 5] = [
    Command { name: "sbatch -p nowhere", options: SBATCH, share: 50, ends: &["--wrap true"], wrong_ends: &["absent"] },
    Command { name: "squeue", options: SQUEUE, share: 15, ends: &[""], wrong_ends: &["x", "1"] },
    Command {
        name: "scancel",
        options: SCANCEL,
        share: 13,
        ends: &["1", "99999"],
        wrong_ends: &["", "x", "1_2", "1_[2-3] 5", "1.0", "1.x", "--bogus"],
    },
    Command { name: "sacct", options: SACCT, share: 12, ends: &[""], wrong_ends: &["x"] },
    Command { name: "sinfo", options: SINFO, share: 10, ends: &[""], wrong_ends: &["x"] },
];

/// Numbers from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

/// Different lines of the shell, always the same for a seed.
pub(crate) fn lines(seed: u64, count: usize) -> Vec<String> {
    let mut random = Random(seed);
    let mut seen = std::collections::HashSet::new();
    let mut lines = Vec::with_capacity(count);
    for _ in 0..count * 20 {
        if lines.len() == count {
            break;
        }
        let line = line(&mut random);
        if seen.insert(line.clone()) {
            lines.push(line);
        }
    }
    lines
}

fn line(random: &mut Random) -> String {
    let mut share = random.below(100);
    let chosen = COMMANDS.iter().find(|command| match share.checked_sub(command.share) {
        Some(rest) => {
            share = rest;
            false
        }
        None => true,
    });
    let Command { name, options, ends, wrong_ends, .. } = chosen.unwrap_or(&COMMANDS[0]);
    let (options, end): (Vec<String>, _) = match random.below(100) {
        0..60 => (vec![option(random, options)], random.pick(ends)),
        60..85 => {
            let count = 1 + random.below(3);
            ((0..count).map(|_| usual_option(random, options)).collect(), random.pick(ends))
        }
        _ => (vec![usual_option(random, options)], random.pick(wrong_ends)),
    };
    format!("{name} {} {end}", options.join(" ")).trim_end().to_owned()
}

/// An option in one of its forms, with a usual value.
fn usual_option(random: &mut Random, options: &[Opt]) -> String {
    let &(long, short, values) = random.pick(options);
    let uses_short = short != ' ' && random.percent(40);
    let usual: Option<&str> = (!values.is_empty()).then(|| values[random.below(2) as usize]);
    let value = usual.map(quoted);
    match (value, uses_short, random.percent(50)) {
        (None, true, _) => format!("-{short}"),
        (None, false, _) => format!("--{long}"),
        (Some(value), true, true) => format!("-{short}{value}"),
        (Some(value), true, false) => format!("-{short} {value}"),
        (Some(value), false, true) => format!("--{long}={value}"),
        (Some(value), false, false) => format!("--{long} {value}"),
    }
}

/// An option in one of its forms, sometimes a wrong one, with any value.
fn option(random: &mut Random, options: &[Opt]) -> String {
    if random.percent(4) {
        return (*random.pick(&["--bogus", "--bogus=1", "-@", "-Z9", "--", "--no", "--=x", "-"])).to_owned();
    }
    let &(long, short, values) = random.pick(options);
    let uses_short = short != ' ' && random.percent(40);
    // An abbreviation may be ambiguous.
    let name =
        if !uses_short && random.percent(20) { &long[..1 + random.below(long.len() as u64) as usize] } else { long };
    if values.is_empty() {
        return match (uses_short, random.below(10)) {
            (true, 0) => {
                // In a cluster with another short option.
                let flags: Vec<char> =
                    options.iter().filter(|it| it.1 != ' ' && it.2.is_empty()).map(|it| it.1).collect();
                format!("-{short}{}", random.pick(&flags))
            }
            (true, _) => format!("-{short}"),
            (false, 0) => format!("--{name}=1"),
            (false, _) => format!("--{name}"),
        };
    }
    let value: &&str = random.pick(values);
    let value = quoted(value);
    match (uses_short, random.below(10)) {
        (true, 0..5) => format!("-{short}{value}"),
        (true, _) => format!("-{short} {value}"),
        // The value is missing, or what follows is taken for it.
        (false, 0) => format!("--{name}"),
        (false, 1..4) => format!("--{name} {value}"),
        (false, _) => format!("--{name}={value}"),
    }
}

fn quoted(value: &str) -> String {
    let is_plain =
        !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.,:=%/_+@".contains(&byte));
    if is_plain { value.to_owned() } else { format!("'{value}'") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_with_values_have_usual_ones() {
        for (name, _, values) in COMMANDS.iter().flat_map(|command| command.options) {
            assert_ne!(values.len(), 1, "{name}");
        }
    }

    #[test]
    fn a_seed_always_gives_the_same_different_lines() {
        let all = lines(1, 2500);
        assert_eq!(all.len(), 2500);
        assert_eq!(all, lines(1, 2500));
        assert_ne!(all, lines(2, 2500));
        assert!(all.iter().all(|line| super::super::lines::command(line).is_some()));
        let shares: u64 = COMMANDS.iter().map(|command| command.share).sum();
        assert_eq!(shares, 100);
    }
}
