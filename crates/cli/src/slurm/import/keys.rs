//! Every key of Slurm's files, with what Hostler makes of it.
//!
//! The tables have the keys of Slurm 26.05 and those of earlier releases. A key that is not here is a mistake.

use hostler_slurm::conf::Kind;

use super::verdict::{Judgement, Verdict, is_off};

/// Keys with the same explanation, separated by blanks.
#[derive(Debug)]
pub(super) struct Keys {
    how: How,
    keys: &'static str,
    note: &'static str,
}

/// How a key is translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// By code.
    Code,
    /// Not at all: Hostler has nothing like it, unless the value switches it off.
    Missing,
    /// Not at all: Hostler does not need it.
    Unneeded,
}

const fn code(keys: &'static str) -> Keys {
    Keys { how: How::Code, keys, note: "" }
}

const fn missing(keys: &'static str, note: &'static str) -> Keys {
    Keys { how: How::Missing, keys, note }
}

const fn unneeded(keys: &'static str, note: &'static str) -> Keys {
    Keys { how: How::Unneeded, keys, note }
}

const HARDWARE: &str = "agents find the CPUs, memory and GPUs of their machine";

const NO_FACTORS: &str =
    "no factors: jobs start by priority, and users of equal priority take turns by what they hold now";

const NO_PREEMPTION: &str = "no preemption. Use a partition with a higher priority for urgent jobs";

const NO_HOOKS: &str =
    "no programs run before or after each job. Put the commands into job scripts or into the nodes' boot";

const NO_PLUGINS: &str = "no plug-ins. Use limits of partitions and quotas, which the head checks at submission";

const NO_ACCOUNTING_DAEMON: &str = "the head keeps the records itself; see `sacct` and `hostler jobs --all`";

const CGROUPS: &str = "agents always use cgroups for the processes of a job";

const NO_MEMORY_LIMITS: &str = "no memory limit per job. Use `hostler configure user quota NAME --memory SIZE`";

const NO_GPU_DEFAULTS: &str = "no defaults per GPU. Jobs need --cpus-per-task and --mem or --mem-per-gpu";

const NO_RESERVATIONS: &str = "no reservations. Use a partition for the nodes and users";

const FREQUENCIES: &str = "Hostler sets no frequencies. Use the nodes' own settings";

const CLUSTER: &[Keys] = &[
    code(
        "SchedulerType KillWait DefMemPerCPU DefMemPerNode SuspendTime SuspendTimeout ResumeTimeout SuspendProgram \
         ResumeProgram JobRequeue SelectType",
    ),
    unneeded("ClusterName", "the name of the cluster is always `hostler`"),
    unneeded(
        "SlurmctldHost SlurmctldAddr SlurmctldPort SlurmdPort ControlMachine ControlAddr BackupController BackupAddr SrunPortRange \
         CommunicationParameters TreeWidth RoutePlugin TCPTimeout MessageTimeout KeepAliveTime SchedulerPort \
         MsgAggregationParams EioTimeout BatchStartTimeout DynAllocPort",
        "agents connect to the head; see `hostler node invite` and `hostler agent join`",
    ),
    unneeded(
        "AuthType AuthInfo AuthAltTypes AuthAltParameters CredType CryptoType HashPlugin JobCredentialPrivateKey \
         JobCredentialPublicCertificate TLSType TLSParameters CertmgrType CertmgrParameters CertgenType CertgenParameters",
        "the head gives each node a certificate, and the kernel identifies users",
    ),
    unneeded(
        "SlurmUser SlurmdUser StateSaveLocation SlurmdSpoolDir SlurmctldPidFile SlurmdPidFile PluginDir TmpFS \
         SlurmctldPlugstack SlurmctldPrimaryOnProg SlurmctldPrimaryOffProg",
        "the daemons have directories of their own; see `hostler head run --directory`",
    ),
    unneeded(
        "SlurmctldDebug SlurmctldLogFile SlurmctldSyslogDebug SlurmdDebug SlurmdLogFile SlurmdSyslogDebug SlurmSchedLogFile \
         SlurmSchedLogLevel LogTimeFormat DebugFlags",
        "the daemons write logs to standard error, e.g. for systemd",
    ),
    unneeded(
        "SlurmctldTimeout SlurmdTimeout ReturnToService",
        "a silent node is down within seconds, until its agent connects; see the setting `lost-after`",
    ),
    unneeded(
        "SlurmctldParameters SlurmdParameters SlurmstepdParameters SlurmrestdParameters DataParserParameters \
         SerializerPlugins SerializerParameters HttpParserType UrlParserType SlurmctldHttpAuthParameters \
         SlurmdHttpAuthParameters SlurmrestdHttpAuthParameters MetricsType MetricsParameters MetricsAuthUsers \
         ReconfigFlags FastSchedule CacheGroups GroupUpdateForce GroupUpdateTime GetEnvTimeout MaxDBDMsgs MaxNodeCount \
         LayoutsType MaxSubmitLineSize ChosLoc AllowSpecResourcesUsage UseSpecResources",
        "only for Slurm's own daemons",
    ),
    unneeded(
        "SchedulerParameters SchedulerRootFilter SelectTypeParameters CompleteWait \
         DependencyParameters",
        "only for Slurm's own scheduler; Hostler plans after every change",
    ),
    unneeded(
        "AccountingStorageType AccountingStorageHost AccountingStorageBackupHost AccountingStorageExternalHost \
         AccountingStorageLoc AccountingStoragePass AccountingStoragePort AccountingStorageUser AccountingStorageParameters \
         AccountingStorageTRES AccountingStoreFlags AccountingStoreJobComment JobAcctGatherType JobAcctGatherFrequency \
         JobAcctGatherParams JobCompType JobCompHost JobCompLoc JobCompParams JobCompPass JobCompPassScript JobCompPort \
         JobCompUser AcctGatherProfileType",
        NO_ACCOUNTING_DAEMON,
    ),
    unneeded(
        "AcctGatherEnergyType AcctGatherNodeFreq ExtSensorsType ExtSensorsFreq",
        "the head measures the nodes that its power.toml names; see `hostler info --energy`",
    ),
    missing(
        "AcctGatherFilesystemType AcctGatherInfinibandType AcctGatherInterconnectType",
        "no records of network and file system use. Monitor the nodes, e.g. with Prometheus",
    ),
    missing(
        "AccountingStorageEnforce",
        "accounts and QOS of jobs are labels. Use `hostler configure group quota` for limits",
    ),
    unneeded("TrackWCKey", "the wckey of a job is a label"),
    unneeded("ProctrackType TaskPlugin TaskPluginParam MemLimitEnforce VSizeFactor CoreSpecPlugin", CGROUPS),
    unneeded("GresTypes", "agents find GPUs; their agent.toml names other resources"),
    unneeded("EnforcePartLimits", "the head always refuses jobs that exceed the limits of their partition"),
    unneeded("DisableRootJobs", "only nodes with `root_jobs` in agent.toml run jobs of root"),
    unneeded(
        "MaxJobCount MaxArraySize MaxStepCount MaxTasksPerNode MinJobAge FirstJobId MaxJobId InactiveLimit",
        "Hostler has limits of its own; see the settings `waiting-jobs` and `retention`",
    ),
    unneeded(
        "UnkillableStepProgram UnkillableStepTimeout EpilogMsgTime",
        "a job keeps its resources until all its processes have ended",
    ),
    missing(
        "PriorityType PriorityFlags PriorityParameters PriorityCalcPeriod PriorityDecayHalfLife PriorityFavorSmall \
         PriorityMaxAge PriorityUsageResetPeriod PriorityWeightAge PriorityWeightAssoc PriorityWeightFairshare \
         PriorityWeightJobSize PriorityWeightPartition PriorityWeightQOS PriorityWeightTRES PrioritySiteFactorPlugin \
         PrioritySiteFactorParameters FairShareDampeningFactor",
        NO_FACTORS,
    ),
    missing("PreemptType PreemptMode PreemptParameters PreemptExemptTime SchedulerTimeSlice", NO_PREEMPTION),
    missing(
        "Prolog Epilog PrologSlurmctld EpilogSlurmctld PrologFlags PrologTimeout EpilogTimeout PrologEpilogTimeout PrEpPlugins \
         PrEpParameters SrunProlog SrunEpilog TaskProlog TaskEpilog ResvProlog ResvEpilog",
        NO_HOOKS,
    ),
    missing(
        "HealthCheckProgram HealthCheckInterval HealthCheckNodeState HealthCheckTimeout",
        "no health checks. Run the program from cron, and let it call `hostler node drain NAME`",
    ),
    missing(
        "JobSubmitPlugins CliFilterPlugins CliFilterParameters PlugStackConfig MCSPlugin MCSParameters NodeFeaturesPlugins \
         DefRuntimePlugin",
        NO_PLUGINS,
    ),
    missing(
        "Licenses LicenseParameters",
        "no licences of a cluster. Count them on one node: `[resources]` in its agent.toml, `--resource` for jobs",
    ),
    missing("MailProg MailDomain", "`sbatch` sends no mail. Write a notify.toml and use `hostler submit --notify`"),
    missing(
        "TopologyPlugin TopologyParam",
        "the scheduler does not know the network. Use features for racks, and --constraint",
    ),
    missing("BurstBufferType BurstBufferParameters", "no burst buffers. Copy data in job scripts"),
    missing("SwitchType SwitchParameters", "no plug-ins for networks. MPI chooses its network itself"),
    missing("MpiDefault MpiParams", "use `srun --mpi=pmi2` for MPICH, and `mpirun` for Open MPI"),
    missing("JobContainerType NamespaceType", "jobs share the /tmp of their node. Use `mktemp -d` in job scripts"),
    missing("MaxMemPerCPU MaxMemPerNode", NO_MEMORY_LIMITS),
    missing("DefMemPerGPU DefCPUPerGPU", NO_GPU_DEFAULTS),
    missing("PrivateData", "all users see names and states of jobs; command lines, output and results are private"),
    missing("OverTimeLimit", "a job ends at its time limit. Raise the limits by these minutes"),
    missing("KillOnBadExit WaitTime", "no default for all jobs. Use `srun --kill-on-bad-exit` and `srun --wait`"),
    missing("JobFileAppend", "no default for all jobs. Use `sbatch --open-mode=append` or SBATCH_OPEN_MODE"),
    missing(
        "RequeueExit RequeueExitHold MaxBatchRequeue JobCheckpointDir CheckpointType",
        "no requeue by exit code. Use `scontrol requeue` in job scripts",
    ),
    missing(
        "ResumeFailProgram ResumeRate SuspendRate SuspendExcNodes SuspendExcParts SuspendExcStates PowerAction",
        "not in power.toml. The head switches only nodes that have a controller there",
    ),
    missing("PowerParameters PowerPlugin", "no power caps of running nodes. See `max_watts` in power.toml"),
    missing("RebootProgram", "use `hostler node power NAME cycle`, for nodes that the head's power.toml names"),
    missing("ResvOverRun", NO_RESERVATIONS),
    missing("FederationParameters", "clusters do not share a queue. Log in to each: `hostler login`"),
    missing("X11Parameters", "`srun` forwards no X11 connections. Use `ssh -X` to the node"),
    missing("CpuFreqDef CpuFreqGovernors GpuFreqDef", FREQUENCIES),
    missing(
        "PropagateResourceLimits PropagateResourceLimitsExcept PropagatePrioProcess UsePAM",
        "jobs do not inherit `ulimit` and `nice`. Set them in job scripts or on the nodes",
    ),
    missing(
        "BcastExclude BcastParameters SbcastParameters",
        "no `sbcast`. Use `hostler submit`, which copies a folder to the nodes",
    ),
    missing("ScronParameters", "no `scrontab`. Use cron and `sbatch`"),
    missing(
        "InteractiveStepOptions LaunchParameters LaunchType SallocDefaultCommand",
        "`salloc` starts its shell on the local machine. Use `srun --pty` for a shell on the node",
    ),
];

const NODES: &[Keys] = &[
    code("NodeName Feature Features Weight State Reason Gres NodeHostname"),
    unneeded(
        "Boards CPUs Procs Sockets SocketsPerBoard CoresPerSocket ThreadsPerCore RealMemory GresConf RestrictedCoresPerGPU",
        HARDWARE,
    ),
    unneeded(
        "NodeAddr BcastAddr Port",
        "agents connect to the head; see `hostler node invite` and `hostler agent join`",
    ),
    missing(
        "CoreSpecCount CpuSpecList MemSpecLimit",
        "no such values here. Offer less in the node's agent.toml: `cpus = N`, `memory = \"SIZE\"`",
    ),
    missing("TmpDisk", "Hostler does not count disk space. Use a feature for nodes with large disks"),
    missing("Topology", "the scheduler does not know the network. Use features for racks, and --constraint"),
    unneeded("CpuBind", "each job gets its own CPUs"),
    missing("TRESWeights Parameters", "no such setting of a node"),
    missing("SuspendTime", "no such value here. Write `idle` into the node's table in power.toml"),
];

const PARTITION: &[Keys] = &[
    code(
        "PartitionName Nodes Default MaxTime DefaultTime MaxNodes PriorityTier Priority State AllowGroups AllowAccounts RootOnly \
         DenyAccounts MinNodes",
    ),
    missing(
        "OverSubscribe Shared Exclusive ExclusiveUser ExclusiveTopo",
        "no shared CPUs. For whole nodes: `hostler configure partition set NAME --exclusive always`",
    ),
    missing(
        "AllowQos DenyQos QOS",
        "the QOS of a job is a label without limits. Use limits of the partition, and quotas",
    ),
    missing("AllocNodes", "users can submit from every node"),
    missing("Hidden", "all users see all partitions"),
    missing("Alternate", "jobs do not move to another partition. Use `hostler update JOB --partition`"),
    missing("MaxCPUsPerNode MaxCPUsPerSocket", "no partition of a part of a node. Run two agents that divide the CPUs"),
    missing(
        "DefMemPerCPU DefMemPerNode",
        "one default for the whole cluster: `hostler configure setting default-memory`",
    ),
    missing("MaxMemPerCPU MaxMemPerNode", NO_MEMORY_LIMITS),
    missing("DefMemPerGPU DefCPUPerGPU", NO_GPU_DEFAULTS),
    missing("PreemptMode GraceTime", NO_PREEMPTION),
    missing("PriorityJobFactor TRESBillingWeights", NO_FACTORS),
    missing("ReqResv", "no reservations, so all jobs may use the partition. Restrict it to users or groups"),
    missing("OverTimeLimit", "a job ends at its time limit. Raise the limits by these minutes"),
    missing(
        "SuspendTime SuspendTimeout ResumeTimeout PowerDownOnIdle",
        "no such values of a partition. Write `idle` into the nodes' tables in power.toml",
    ),
    missing("LLN", "jobs go to the fullest node that has room. Use weights"),
    missing("Topology", "the scheduler does not know the network. Use features for racks, and --constraint"),
    unneeded("CpuBind SelectTypeParameters", "each job gets its own CPUs"),
    unneeded("DisableRootJobs", "only nodes with `root_jobs` in agent.toml run jobs of root"),
];

const NODE_SET: &[Keys] = &[code("NodeSet Nodes Feature Features")];

const DOWN_NODES: &[Keys] = &[code("DownNodes State Reason")];

const FRONTEND: &[Keys] = &[missing(
    "FrontendName FrontendAddr Port Reason State AllowGroups AllowUsers DenyGroups DenyUsers",
    "no host acts for other nodes. Run an agent on each node",
)];

/// Keys of `gres.conf`.
const GRES: &[Keys] = &[
    code("Name Count"),
    unneeded("AutoDetect NodeName Type File Files Cores CPUs Flags Link Links MultipleFiles", HARDWARE),
];

/// Keys of `cgroup.conf`.
const CGROUP: &[Keys] = &[
    code("ConstrainCores ConstrainRAMSpace ConstrainDevices"),
    unneeded(
        "CgroupAutomount CgroupMountpoint CgroupPlugin CgroupReleaseAgentDir IgnoreSystemd IgnoreSystemdOnFailure SystemdTimeout \
         EnableControllers EnableExtraControllers AllowedDevicesFile AllowedKmemSpace ConstrainKmemSpace MaxKmemPercent MinKmemSpace \
         TaskAffinity MemoryLimitEnforcement MemoryLimitThreshold SignalChildrenProcesses",
        CGROUPS,
    ),
    missing(
        "AllowedRAMSpace AllowedSwapSpace ConstrainSwapSpace MaxRAMPercent MaxSwapPercent MemorySwappiness MinRAMSpace",
        "a job always gets the memory that it asks for, and no swap",
    ),
];

/// The note of a key that its value switches off.
pub(super) const NOT_USED: &str = "switched off in Slurm, too";

/// A table of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Table {
    /// A kind of record in `slurm.conf`.
    Slurm(Kind),
    Gres,
    Cgroup,
}

impl Table {
    const fn groups(self) -> &'static [Keys] {
        match self {
            Self::Slurm(Kind::Cluster) => CLUSTER,
            Self::Slurm(Kind::Nodes) => NODES,
            Self::Slurm(Kind::Partition) => PARTITION,
            Self::Slurm(Kind::NodeSet) => NODE_SET,
            Self::Slurm(Kind::DownNodes) => DOWN_NODES,
            Self::Slurm(Kind::Frontend) => FRONTEND,
            Self::Gres => GRES,
            Self::Cgroup => CGROUP,
        }
    }

    /// All keys of the table.
    pub(super) fn keys(self) -> impl Iterator<Item = &'static str> {
        self.groups().iter().flat_map(|group| group.keys.split_whitespace())
    }

    /// Looks a key up in the table. `None` if the key is unknown.
    pub(super) fn judge(self, key: &str, value: &str) -> Option<Fixed> {
        let has = |group: &&Keys| group.keys.split_whitespace().any(|known| known.eq_ignore_ascii_case(key));
        let group = self.groups().iter().find(has)?;
        let judgement = |verdict, note: &str| Fixed::Judgement(Judgement { verdict, note: note.to_owned() });
        Some(match group.how {
            How::Code => Fixed::Code,
            How::Missing if is_off(value) => judgement(Verdict::Unneeded, NOT_USED),
            How::Missing => judgement(Verdict::Missing, group.note),
            How::Unneeded => judgement(Verdict::Unneeded, group.note),
        })
    }
}

/// What a table says about a pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fixed {
    Judgement(Judgement),
    /// Code judges the pair by its value.
    Code,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const TABLES: [Table; 8] = [
        Table::Slurm(Kind::Cluster),
        Table::Slurm(Kind::Nodes),
        Table::Slurm(Kind::Partition),
        Table::Slurm(Kind::NodeSet),
        Table::Slurm(Kind::DownNodes),
        Table::Slurm(Kind::Frontend),
        Table::Gres,
        Table::Cgroup,
    ];

    #[test]
    fn each_key_is_in_a_table_once() {
        for table in TABLES {
            let mut seen = BTreeSet::new();
            for key in table.keys() {
                assert!(seen.insert(key.to_ascii_lowercase()), "{table:?} has {key} twice");
            }
        }
        assert!(Table::Slurm(Kind::Cluster).keys().count() > 250);
    }

    #[test]
    fn keys_are_judged_without_case() {
        let partition = Table::Slurm(Kind::Partition);
        assert_eq!(partition.judge("maxtime", "1"), Some(Fixed::Code));
        assert_eq!(partition.judge("MaxTime2", "1"), None);
        let Some(Fixed::Judgement(off)) = partition.judge("hidden", "NO") else { panic!("a judgement") };
        let Some(Fixed::Judgement(on)) = partition.judge("Hidden", "YES") else { panic!("a judgement") };
        assert_eq!((off.verdict, on.verdict), (Verdict::Unneeded, Verdict::Missing));
    }

    #[test]
    fn notes_are_short_sentences() {
        for group in TABLES.iter().flat_map(|table| table.groups()) {
            assert!(group.how == How::Code || group.note.len() > 15, "{group:?}");
            assert!(group.note.len() <= 110 && !group.note.ends_with('.'), "{group:?}");
        }
    }
}
