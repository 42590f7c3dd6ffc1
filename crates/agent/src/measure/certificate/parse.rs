//! What the kernel's files say. Pure: text in, numbers out.

use hostler_proto::certificate::{MeasuredMachine, Waited};

use crate::measure::usage::{value_of, waited};

/// Counters of `/proc/stat` since the machine's start. Times are microseconds, summed over all CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Stat {
    /// Time in which CPUs ran processes, the kernel or interrupts.
    pub(super) busy_us: u64,
    pub(super) iowait_us: u64,
    pub(super) steal_us: u64,
    pub(super) context_switches: u64,
    pub(super) interrupts: u64,
}

/// Reads `/proc/stat`, whose times are ticks of `tick_us` microseconds.
pub(super) fn stat(text: &str, tick_us: u64) -> Option<Stat> {
    let line = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    let number = |key: &str| line(key)?.split_ascii_whitespace().next()?.parse::<u64>().ok();
    let times: Vec<u64> = line("cpu")?.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; guest time is included in user.
    let [user, nice, system, _idle, iowait, irq, softirq, steal, ..] = times[..] else { return None };
    let busy = user + nice + system + irq + softirq;
    Some(Stat {
        busy_us: busy.saturating_mul(tick_us),
        iowait_us: iowait.saturating_mul(tick_us),
        steal_us: steal.saturating_mul(tick_us),
        context_switches: number("ctxt").unwrap_or(0),
        interrupts: number("intr").unwrap_or(0),
    })
}

/// Reads the three files of pressure stall information.
pub(super) fn all_waited(read: impl Fn(&str) -> Option<String>) -> Waited {
    let one = |name: &str| waited(&read(name)?);
    Waited { cpu_us: one("cpu"), memory_us: one("memory"), io_us: one("io") }
}

/// Number of pages that moved to or from swap space, from `/proc/vmstat`.
pub(super) fn swapped(text: &str) -> Option<u64> {
    Some(value_of(text, "pswpin")? + value_of(text, "pswpout")?)
}

/// Adds what `/proc/cpuinfo` says about the first CPU.
pub(super) fn add_cpuinfo(machine: &mut MeasuredMachine, text: &str) {
    let field = |key: &str| {
        let line = text.lines().find(|line| line.split(':').next().is_some_and(|name| name.trim() == key))?;
        let value = line.split_once(':')?.1.trim();
        (!value.is_empty()).then(|| short(value))
    };
    machine.cpu_model = field("model name");
    machine.microcode = field("microcode");
    let flags = text.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    machine.is_virtual = flags.split_ascii_whitespace().any(|flag| flag == "hypervisor");
}

/// The text without surrounding white space, at most 100 characters.
pub(super) fn short(text: &str) -> String {
    text.trim().chars().filter(|c| !c.is_control()).take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded on a virtual machine with two CPUs.
    const STAT: &str = "cpu  1170427 471420 492945 407956 9380 0 7535 2142 0 0\n\
                        cpu0 580255 229724 249771 214778 3382 0 1718 1051 0 0\n\
                        cpu1 590171 241696 243174 193177 5998 0 5817 1090 0 0\n\
                        intr 17430245 0 0 1 13\nctxt 51234567\nbtime 1795812345\nprocesses 1\nprocs_running 4\n";

    #[test]
    fn counters_of_the_machine_are_read() {
        let stat = stat(STAT, 10_000).expect("a complete file");
        assert_eq!(stat.busy_us, (1_170_427 + 471_420 + 492_945 + 7_535) * 10_000);
        assert_eq!((stat.iowait_us, stat.steal_us), (93_800_000, 21_420_000));
        assert_eq!((stat.context_switches, stat.interrupts), (51_234_567, 17_430_245));
        assert_eq!(super::stat("cpu  1 2 3\n", 10_000), None, "a kernel without these fields");
    }

    #[test]
    fn pressure_is_the_time_in_which_some_process_waited() {
        let text =
            "some avg10=0.01 avg60=2.03 avg300=3.66 total=343001198\nfull avg10=0.00 avg60=0.62 total=56983182\n";
        let all = all_waited(|name| (name != "io").then(|| text.to_owned()));
        assert_eq!((all.cpu_us, all.memory_us, all.io_us), (Some(343_001_198), Some(343_001_198), None));
    }

    #[test]
    fn swap_counters_are_read() {
        assert_eq!(swapped("nr_free_pages 1\npswpin 3\npswpout 4\npgfault 9\n"), Some(7));
        assert_eq!(swapped("nr_free_pages 1\n"), None);
    }

    #[test]
    fn processor_is_described_as_far_as_known() {
        let mut machine = MeasuredMachine::default();
        let text =
            "processor\t: 0\nmodel name\t: AMD EPYC\nmicrocode\t: 0x1000065\nflags\t\t: fpu hypervisor lahf_lm\n";
        add_cpuinfo(&mut machine, text);
        assert_eq!((machine.cpu_model.as_deref(), machine.microcode.as_deref()), (Some("AMD EPYC"), Some("0x1000065")));
        assert!(machine.is_virtual);
        add_cpuinfo(&mut machine, "processor\t: 0\nBogoMIPS\t: 108.00\nCPU implementer\t: 0x41\n");
        assert_eq!((machine.cpu_model, machine.microcode, machine.is_virtual), (None, None, false));
    }
}
