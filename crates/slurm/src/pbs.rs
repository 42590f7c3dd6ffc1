//! `#PBS` lines in batch scripts, which `sbatch` reads too: as options of Slurm with the same meaning.

/// Options of PBS that take a value. Those that are not translated have no counterpart: what they ask for happens anyway, or
/// concerns only PBS.
const WITH_VALUE: &str = "aAcCejJklmMNopPqrStuvW";

/// Translates the words of a `#PBS` line to options of `sbatch`. Ignores words that are not options of PBS.
#[must_use]
pub fn options(words: &[String]) -> Vec<String> {
    let mut all = Vec::new();
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let Some(letter) = word.strip_prefix('-').and_then(|rest| rest.chars().next()) else { continue };
        let value = match &word[1 + letter.len_utf8()..] {
            "" if WITH_VALUE.contains(letter) => words.next().unwrap_or_default(),
            value => value,
        };
        let mut add = |name: &str, value: &str| all.push(format!("--{name}={value}"));
        match letter {
            'a' => add("begin", value),
            'A' => add("account", value),
            'e' => add("error", value),
            'h' => all.push("--hold".to_owned()),
            'J' | 't' => add("array", value),
            'l' => all.extend(resources(value)),
            'm' => add("mail-type", &mail_types(value)),
            'M' => add("mail-user", value),
            'N' => add("job-name", value),
            'o' => add("output", value),
            // A queue may be followed by the name of a server.
            'q' => add("partition", value.split('@').next().unwrap_or_default()),
            'r' => all.push(if value == "n" { "--no-requeue" } else { "--requeue" }.to_owned()),
            'v' => add("export", &format!("ALL,{value}")),
            'W' => {
                if let Some(jobs) = value.strip_prefix("depend=") {
                    add("dependency", jobs);
                }
            }
            _ => {}
        }
    }
    all
}

/// When to send mail: `a` at a failure, `b` at the start, `e` at the end.
fn mail_types(letters: &str) -> String {
    let name = |letter| match letter {
        'a' => Some("FAIL"),
        'b' => Some("BEGIN"),
        'e' => Some("END"),
        _ => None,
    };
    let names: Vec<&str> = letters.chars().filter_map(name).collect();
    if names.is_empty() { "NONE".to_owned() } else { names.join(",") }
}

/// Translates a list of resources such as `nodes=2:ppn=4,walltime=1:00:00,mem=4gb`, or `select=2:ncpus=4:mpiprocs=2`.
fn resources(list: &str) -> Vec<String> {
    let mut all = Vec::new();
    for item in list.split(',') {
        let (name, value) = item.split_once('=').unwrap_or((item, ""));
        match name {
            "walltime" => all.push(format!("--time={}", time(value))),
            "mem" => all.push(format!("--mem={}", size(value))),
            "pmem" => all.push(format!("--mem-per-cpu={}", size(value))),
            "file" => all.push(format!("--tmp={}", size(value))),
            "host" => all.push(format!("--nodelist={value}")),
            "ncpus" | "procs" => all.push(format!("--mincpus={value}")),
            "nodes" => all.extend(nodes(value)),
            "select" => all.extend(chunks(value)),
            _ => {}
        }
    }
    all
}

/// Translates `2:ppn=4`, `n1+n2` or `n1:ppn=2+3:ppn=2`: numbers and names of nodes, with processors on each.
fn nodes(value: &str) -> Vec<String> {
    let (mut count, mut processors, mut names) = (0, 0, Vec::new());
    for part in value.split('+') {
        let mut words = part.split(':');
        let first = words.next().unwrap_or_default();
        let here: u32 = match first.parse() {
            Ok(number) => number,
            Err(_) => {
                names.push(first);
                1
            }
        };
        let each = words.find_map(|word| word.strip_prefix("ppn=")?.parse::<u32>().ok()).unwrap_or(0);
        count += here;
        processors += here.saturating_mul(each);
    }
    let mut all = vec![format!("--nodes={count}")];
    if processors > 0 {
        all.push(format!("--ntasks={processors}"));
    }
    if !names.is_empty() {
        all.push(format!("--nodelist={}", names.join(",")));
    }
    all
}

/// Translates `2:ncpus=4:mpiprocs=2:mem=4gb:ngpus=1`: equal parts on a node each.
fn chunks(value: &str) -> Vec<String> {
    let mut words = value.split(['+', ':']);
    let mut all = vec![format!("--nodes={}", words.next().unwrap_or("1"))];
    let (mut cpus, mut ranks) = (None, None);
    for (name, amount) in words.filter_map(|word| word.split_once('=')) {
        match name {
            "ncpus" => cpus = amount.parse::<u32>().ok(),
            "mpiprocs" => ranks = amount.parse::<u32>().ok().filter(|ranks| *ranks > 0),
            "mem" => all.push(format!("--mem={}", size(amount))),
            "ngpus" => all.push(format!("--gpus-per-node={amount}")),
            _ => {}
        }
    }
    match (cpus, ranks) {
        (Some(cpus), Some(ranks)) => {
            all.push(format!("--ntasks-per-node={ranks}"));
            all.push(format!("--cpus-per-task={}", (cpus / ranks).max(1)));
        }
        (Some(cpus), None) => all.push(format!("--mincpus={cpus}")),
        (None, Some(ranks)) => all.push(format!("--ntasks-per-node={ranks}")),
        (None, None) => {}
    }
    all
}

/// A time: a number alone is in seconds for PBS, and in minutes for Slurm.
fn time(value: &str) -> String {
    match value.parse::<u64>() {
        Ok(seconds) => format!("{}:{:02}", seconds / 60, seconds % 60),
        Err(_) => value.to_owned(),
    }
}

/// A size such as `4gb`, which Slurm writes as `4G`.
fn size(value: &str) -> String {
    let lower = value.to_ascii_lowercase();
    let number = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    match &lower[number.len()..] {
        // Slurm has no unit below kibibytes.
        "" | "b" | "w" => format!("{}K", number.parse::<u64>().map_or(0, |bytes| bytes.div_ceil(1024))),
        unit => format!("{number}{}", unit.trim_end_matches(['b', 'w']).to_ascii_uppercase()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_pbs_become_options() {
        for (line, expected) in [
            ("-N name", "--job-name=name"),
            ("-Nname -q all@server -A lab -h", "--job-name=name --partition=all --account=lab --hold"),
            ("-l nodes=2:ppn=4,walltime=1:30:00", "--nodes=2 --ntasks=8 --time=1:30:00"),
            ("-l nodes=n1:ppn=2+n2", "--nodes=2 --ntasks=2 --nodelist=n1,n2"),
            ("-l select=2:ncpus=4:mpiprocs=2:mem=4gb", "--nodes=2 --mem=4G --ntasks-per-node=2 --cpus-per-task=2"),
            ("-l ncpus=3 -l mem=500mb,pmem=1048576b", "--mincpus=3 --mem=500M --mem-per-cpu=1024K"),
            ("-l walltime=3661", "--time=61:01"),
            ("-t 0-3 -W depend=afterok:7", "--array=0-3 --dependency=afterok:7"),
            ("-j oe -S /bin/bash -V -v A=1,B -r n", "--export=ALL,A=1,B --no-requeue"),
            ("-m abe -M me@example.org", "--mail-type=FAIL,BEGIN,END --mail-user=me@example.org"),
            ("nonsense -", ""),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(options(&words).join(" "), expected, "{line}");
        }
    }
}
