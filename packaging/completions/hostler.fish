# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_hostler_global_optspecs
    string join \n head= json q/quiet h/help V/version
end

function __fish_hostler_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_hostler_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_hostler_using_subcommand
    set -l cmd (__fish_hostler_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c hostler -n "__fish_hostler_needs_command" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_needs_command" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_needs_command" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c hostler -n "__fish_hostler_needs_command" -s V -l version -d 'Print version'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "demo" -d 'Show what Hostler does, start to finish, on this machine; leaves nothing behind but the results'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "up" -d 'Start a cluster on this machine: a head and virtual nodes that share its resources'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "down" -d 'Stop the cluster on this machine; its state and results stay for the next `hostler up`'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "submit" -d 'Queue a project folder; prints the job\'s id'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "run" -d 'Queue a command, show its output as it appears, and exit with its exit code'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "exec" -d 'Run a command now, on the node with the most room, as if it ran here'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "jobs" -d 'List jobs that have not ended, newest first'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "job" -d 'Show everything about a job, or about one task of an array'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "why" -d 'Say why a job or a task of an array waits, and when it should start'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "logs" -d 'Print what jobs write: their stdout to stdout, their stderr and the preparation of their environment to stderr'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "wait" -d 'Wait until jobs or tasks have ended; the exit code is 0 if all of them completed, 1 if not'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "fetch" -d 'Bring results home'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "cancel" -d 'End jobs; what they made so far still comes home'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "hold" -d 'Keep waiting jobs from starting'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "release" -d 'Let held jobs start'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "requeue" -d 'Run jobs again from the start, whether they run or have ended'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "attach" -d 'Join the terminal of a job that was submitted with --pty; Ctrl-A d leaves it, and the job goes on'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "info" -d 'Show the cluster at a glance'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "nodes" -d 'List the nodes, what they have and what is free'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "node" -d 'Manage nodes: invite, drain, resume, switch on and off, remove; or see what this machine would offer as one'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "login" -d 'Log in to a cluster from a machine that is none of its nodes'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "logout" -d 'Give back the token of a login'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "configure" -d 'Set the cluster up: users, quotas, nodes, partitions and settings, and a look at who did what'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "head" -d 'The head of a cluster: takes jobs, decides what runs where, keeps results'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "agent" -d 'The agent of a node: runs jobs and brings their results to the head'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "gateway" -d 'Make this machine the gateway of its nodes: router, DHCP and DNS server, and VPN endpoint'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "ranks" -d 'Start the processes of a run on this node, each with its rank'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "virtual-node" -d 'Start or stop the agent of a virtual node, or print whether it runs'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "seat" -d 'Run a command in the foreground of this terminal, so that it can be stopped and continued'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "step" -d 'Run a command on another node of the job that this is called in'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "steps" -d 'Take the steps of a job on this node'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "sim" -d 'Replay a recorded workload through the scheduler on a virtual clock and print how well it was served'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "shims" -d 'Make links by which this program is called as other tools: cminfo, cmrun, cmkill and more'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "completions" -d 'Print a completion script for a shell'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "gen" -d 'Write the command reference, completions, man pages and API description into a folder'
complete -c hostler -n "__fish_hostler_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c hostler -n "__fish_hostler_using_subcommand demo" -l to -d 'Where the results go; files of an earlier demonstration are replaced' -r -F
complete -c hostler -n "__fish_hostler_using_subcommand demo" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand demo" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand demo" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand demo" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c hostler -n "__fish_hostler_using_subcommand up" -l nodes -d 'How many nodes; four by default. Without any of the sizes, a cluster gets those that were named for it last' -r
complete -c hostler -n "__fish_hostler_using_subcommand up" -l cpus -d 'CPUs for each node; by default the machine\'s are divided, and shared if there are more nodes. More than the machine has is for trying things: CPU ids beyond those that there are stand for none, and a task that gets only such ids is not bound to any' -r
complete -c hostler -n "__fish_hostler_using_subcommand up" -l memory -d 'Memory for each node; by default four fifths of what is free, at least half of all, are divided' -r
complete -c hostler -n "__fish_hostler_using_subcommand up" -l gpus -d 'The GPUs of all nodes together: `all`, `none`, or a list of indices and unique ids; by default all. Each is given to one node' -r
complete -c hostler -n "__fish_hostler_using_subcommand up" -l resource -d 'Something for each node to count, such as license=2, for jobs to hold with `--resource`; may be repeated' -r
complete -c hostler -n "__fish_hostler_using_subcommand up" -l machine-from -d 'For tests: take GPUs and topology from the machine that `hostler node discover --capture` has captured in this file' -r -F
complete -c hostler -n "__fish_hostler_using_subcommand up" -l results-cap -d 'What results may take on the head\'s disk before fetched ones are dropped; half of the disk by default. Remembered; holds from the next start of the head on' -r
complete -c hostler -n "__fish_hostler_using_subcommand up" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand up" -l elastic -d 'Switch the nodes off while nothing is to be done and on when the queue needs them, as the head does with real machines: watch it with `hostler nodes` while you submit something'
complete -c hostler -n "__fish_hostler_using_subcommand up" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand up" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand up" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c hostler -n "__fish_hostler_using_subcommand down" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand down" -l cancel -d 'Cancel every job first'
complete -c hostler -n "__fish_hostler_using_subcommand down" -l keep -d 'Leave jobs alone: what runs goes on without the cluster, what waits is still there after `hostler up`'
complete -c hostler -n "__fish_hostler_using_subcommand down" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand down" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand down" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c hostler -n "__fish_hostler_using_subcommand submit" -s c -l cpus -d 'CPUs for each task, on each of its nodes; by default one for each process' -r
complete -c hostler -n "__fish_hostler_using_subcommand submit" -s N -l nodes -d 'Run each task on N nodes at once; 1 unless operators have set default-nodes' -r
complete -c hostler -n "__fish_hostler_using_subcommand submit" -s n -l tasks-per-node -d 'Start N processes on each node, which find their rank in RANK, LOCAL_RANK and WORLD_SIZE; 1 unless operators have set default-processes' -r
complete -c hostler -n "__fish_hostler_using_subcommand submit" -s m -l memory -d 'Memory for each task, on each of its nodes, such as 600M or 2G; 512M unless operators have set default-memory' -r
complete -c hostler -n "__fish_hostler_using_subcommand submit" -s g -l gpus -d 'GPUs for each task, on each of its nodes; none by default, and then it sees none' -r
complete -c hostler -n "__fish_hostler_using_subcommand submit" -l resource -d 'Something that nodes count, for each task, on each of its nodes, such as license=2; one of it without a number. May be repeated; `hostler nodes` shows what there is' -r
complete -c hostler -n "__fish_hostler_using_subcommand submit" -s t -l time -d 'Time limit for each task, such as 90s, 30m, 1h30m or 1-12:00:00; none unless operators have set default-time-limit' -r
complete -c hostler -n "__fish_hostler_using_subcommand submit" -s p -l partition -d 'Run on nodes of this partition; `hostler info` lists them' -r
complete -c hostler -n "__fish_hostler_using_subcommand submit" -l constraint -d 'Run on nodes with these features, or of these names: ssd, \'intel&!old\', \'n1|n2\'' -r
complete -c hostler -n "__fish_hostler_using_subcommand submit" -s a -l array -d 'Run once for each index: 0-99, 1-9:2, 1,5,7; with %N at most N at a time' -r
complete -c hostler -n "__fish_hostler_using_subcommand submit" -s d -l after -d 'Start only after other jobs: 12 (completed), or after:, afterok:, afternotok:, afterany: and ids' -r
complete -c hostler -n "__fish_hostler_using_subcommand submit" -l name -d 'A name for people; by default that of the folder or program' -r
complete -c hostler -n "__fish_hostler_using_subcommand submit" -l priority -d 'Higher goes first' -r
complete -c hostler -n "__fish_hostler_using_subcommand submit" -l env -d 'Set a variable for the job, or pass on one of yours by its name alone; may be repeated' -r
complete -c hostler -n "__fish_hostler_using_subcommand submit" -l grace -d 'Time between TERM and KILL when the job is ended' -r
complete -c hostler -n "__fish_hostler_using_subcommand submit" -l to -d 'Where to fetch to; implies --fetch' -r -F
complete -c hostler -n "__fish_hostler_using_subcommand submit" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand submit" -l first-node -d 'Start the program on the first node only; `mpirun` and `hostler step` launch on the others, which wait'
complete -c hostler -n "__fish_hostler_using_subcommand submit" -l requeue -d 'Run again from the start if the node is lost'
complete -c hostler -n "__fish_hostler_using_subcommand submit" -l hold -d 'Do not start before `hostler release`'
complete -c hostler -n "__fish_hostler_using_subcommand submit" -l pty -d 'Give the job a terminal, for `hostler attach`'
complete -c hostler -n "__fish_hostler_using_subcommand submit" -l wait -d 'Wait until the job has ended; the exit code says whether it completed'
complete -c hostler -n "__fish_hostler_using_subcommand submit" -l follow -d 'Show the job\'s output as it appears, then fetch its results'
complete -c hostler -n "__fish_hostler_using_subcommand submit" -l fetch -d 'Wait, then fetch the results'
complete -c hostler -n "__fish_hostler_using_subcommand submit" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand submit" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand submit" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c hostler -n "__fish_hostler_using_subcommand run" -s c -l cpus -d 'CPUs for each task, on each of its nodes; by default one for each process' -r
complete -c hostler -n "__fish_hostler_using_subcommand run" -s N -l nodes -d 'Run each task on N nodes at once; 1 unless operators have set default-nodes' -r
complete -c hostler -n "__fish_hostler_using_subcommand run" -s n -l tasks-per-node -d 'Start N processes on each node, which find their rank in RANK, LOCAL_RANK and WORLD_SIZE; 1 unless operators have set default-processes' -r
complete -c hostler -n "__fish_hostler_using_subcommand run" -s m -l memory -d 'Memory for each task, on each of its nodes, such as 600M or 2G; 512M unless operators have set default-memory' -r
complete -c hostler -n "__fish_hostler_using_subcommand run" -s g -l gpus -d 'GPUs for each task, on each of its nodes; none by default, and then it sees none' -r
complete -c hostler -n "__fish_hostler_using_subcommand run" -l resource -d 'Something that nodes count, for each task, on each of its nodes, such as license=2; one of it without a number. May be repeated; `hostler nodes` shows what there is' -r
complete -c hostler -n "__fish_hostler_using_subcommand run" -s t -l time -d 'Time limit for each task, such as 90s, 30m, 1h30m or 1-12:00:00; none unless operators have set default-time-limit' -r
complete -c hostler -n "__fish_hostler_using_subcommand run" -s p -l partition -d 'Run on nodes of this partition; `hostler info` lists them' -r
complete -c hostler -n "__fish_hostler_using_subcommand run" -l constraint -d 'Run on nodes with these features, or of these names: ssd, \'intel&!old\', \'n1|n2\'' -r
complete -c hostler -n "__fish_hostler_using_subcommand run" -s a -l array -d 'Run once for each index: 0-99, 1-9:2, 1,5,7; with %N at most N at a time' -r
complete -c hostler -n "__fish_hostler_using_subcommand run" -s d -l after -d 'Start only after other jobs: 12 (completed), or after:, afterok:, afternotok:, afterany: and ids' -r
complete -c hostler -n "__fish_hostler_using_subcommand run" -l name -d 'A name for people; by default that of the folder or program' -r
complete -c hostler -n "__fish_hostler_using_subcommand run" -l priority -d 'Higher goes first' -r
complete -c hostler -n "__fish_hostler_using_subcommand run" -l env -d 'Set a variable for the job, or pass on one of yours by its name alone; may be repeated' -r
complete -c hostler -n "__fish_hostler_using_subcommand run" -l grace -d 'Time between TERM and KILL when the job is ended' -r
complete -c hostler -n "__fish_hostler_using_subcommand run" -l env-only -d 'Pass on only these of your variables, e.g. PATH,HOME,LC_*; may be repeated [default: all, or `env_only` of config.toml]' -r
complete -c hostler -n "__fish_hostler_using_subcommand run" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand run" -l first-node -d 'Start the program on the first node only; `mpirun` and `hostler step` launch on the others, which wait'
complete -c hostler -n "__fish_hostler_using_subcommand run" -l requeue -d 'Run again from the start if the node is lost'
complete -c hostler -n "__fish_hostler_using_subcommand run" -l hold -d 'Do not start before `hostler release`'
complete -c hostler -n "__fish_hostler_using_subcommand run" -l pty -d 'Give the job a terminal, for `hostler attach`'
complete -c hostler -n "__fish_hostler_using_subcommand run" -l detach -d 'Print the job\'s id and leave it alone'
complete -c hostler -n "__fish_hostler_using_subcommand run" -l label -d 'Label every line of output with the rank of the process that wrote it; with --array, print each task\'s output at the end, every line labelled with its index'
complete -c hostler -n "__fish_hostler_using_subcommand run" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand run" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c hostler -n "__fish_hostler_using_subcommand exec" -s m -l memory -d 'Only on nodes that can spare so much memory, which is then all that the command may have' -r
complete -c hostler -n "__fish_hostler_using_subcommand exec" -l constraint -l feature -d 'Only on nodes with these features, such as \'gpu&ssd\'' -r
complete -c hostler -n "__fish_hostler_using_subcommand exec" -l node -d 'On this node; of several, on the best of them' -r
complete -c hostler -n "__fish_hostler_using_subcommand exec" -l not -d 'Not on this node; may be repeated' -r
complete -c hostler -n "__fish_hostler_using_subcommand exec" -s C -l directory -d 'Start in this directory of the node, whatever is there, and not in the one that this is called in' -r -F
complete -c hostler -n "__fish_hostler_using_subcommand exec" -l ship -d 'Take the tree along that this directory is in, to a node that does not share the disk, and bring back what the command writes there. The tree is DIR, else the nearest directory above that is under version control, else this directory' -r
complete -c hostler -n "__fish_hostler_using_subcommand exec" -l nodes -d 'On each of these nodes at once, such as n1,n2, as with --all' -r
complete -c hostler -n "__fish_hostler_using_subcommand exec" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand exec" -l prefer-local -d 'Here, unless another node is much better'
complete -c hostler -n "__fish_hostler_using_subcommand exec" -l any-program -d 'With --ship, let the node\'s program of that name be another one than this machine\'s'
complete -c hostler -n "__fish_hostler_using_subcommand exec" -s n -l no-input -d 'Give the command no standard input'
complete -c hostler -n "__fish_hostler_using_subcommand exec" -s T -l no-terminal -d 'Give the command no terminal even if there is one here'
complete -c hostler -n "__fish_hostler_using_subcommand exec" -l where -d 'Say afterwards on standard error where it ran, how that node was judged, and how long it took'
complete -c hostler -n "__fish_hostler_using_subcommand exec" -l explain -d 'Print how all nodes are judged, and run nothing'
complete -c hostler -n "__fish_hostler_using_subcommand exec" -l all -d 'On all nodes at once: every line of output begins with the node\'s name, and a summary of exit codes follows'
complete -c hostler -n "__fish_hostler_using_subcommand exec" -l rsh -d 'Take the command line of `rsh` or `ssh`: options, a node, and words for a shell there; for programs that launch by one of these'
complete -c hostler -n "__fish_hostler_using_subcommand exec" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand exec" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand exec" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c hostler -n "__fish_hostler_using_subcommand jobs" -s s -l state -d 'Only jobs in these states, such as running,failed' -r
complete -c hostler -n "__fish_hostler_using_subcommand jobs" -s u -l user -d 'Only jobs of this user' -r
complete -c hostler -n "__fish_hostler_using_subcommand jobs" -s n -l limit -d 'List at most this many' -r
complete -c hostler -n "__fish_hostler_using_subcommand jobs" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand jobs" -s a -l all -d 'Also list jobs that have ended'
complete -c hostler -n "__fish_hostler_using_subcommand jobs" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand jobs" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand jobs" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand job" -l tasks -d 'Show at most this many tasks of an array that have ended' -r
complete -c hostler -n "__fish_hostler_using_subcommand job" -l from -d 'Show only tasks that have ended, from this index on' -r
complete -c hostler -n "__fish_hostler_using_subcommand job" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand job" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand job" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand job" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand why" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand why" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand why" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand why" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand logs" -l node-rank -d 'Of a job on several nodes: only what it wrote on the node of this rank, from 0' -r
complete -c hostler -n "__fish_hostler_using_subcommand logs" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand logs" -s f -l follow -d 'Go on until the job has ended'
complete -c hostler -n "__fish_hostler_using_subcommand logs" -l stdout -d 'Only what the job wrote to stdout'
complete -c hostler -n "__fish_hostler_using_subcommand logs" -l stderr -d 'Only what the job wrote to stderr'
complete -c hostler -n "__fish_hostler_using_subcommand logs" -l setup -d 'Only what the preparation of its environment wrote'
complete -c hostler -n "__fish_hostler_using_subcommand logs" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand logs" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand logs" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand wait" -l to -d 'Where to fetch to; implies --fetch' -r -F
complete -c hostler -n "__fish_hostler_using_subcommand wait" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand wait" -l fetch -d 'Then fetch their results'
complete -c hostler -n "__fish_hostler_using_subcommand wait" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand wait" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand wait" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand fetch" -l to -d 'Where to' -r -F
complete -c hostler -n "__fish_hostler_using_subcommand fetch" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand fetch" -l all -d 'Everything that has ended and was not fetched before'
complete -c hostler -n "__fish_hostler_using_subcommand fetch" -l overwrite -d 'Replace files of other content that are in the way'
complete -c hostler -n "__fish_hostler_using_subcommand fetch" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand fetch" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand fetch" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c hostler -n "__fish_hostler_using_subcommand cancel" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand cancel" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand cancel" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand cancel" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand hold" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand hold" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand hold" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand hold" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand release" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand release" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand release" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand release" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand requeue" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand requeue" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand requeue" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand requeue" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c hostler -n "__fish_hostler_using_subcommand attach" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand attach" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand attach" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand attach" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c hostler -n "__fish_hostler_using_subcommand info" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand info" -l energy -d 'Show what the nodes draw that the head can switch, and what switching them off has saved'
complete -c hostler -n "__fish_hostler_using_subcommand info" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand info" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand info" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand nodes" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand nodes" -l load -d 'What the nodes tell each other of their load, as the agent of this machine has heard it; needs no head'
complete -c hostler -n "__fish_hostler_using_subcommand nodes" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand nodes" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand nodes" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -f -a "list" -d 'List the nodes, what they have and what is free'
complete -c hostler -n "__fish_hostler_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -f -a "discover" -d 'Show what this machine would offer: CPUs, memory, GPUs, and what it keeps back and why'
complete -c hostler -n "__fish_hostler_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -f -a "invite" -d 'Print a join code, with which one machine can become a node within the hour'
complete -c hostler -n "__fish_hostler_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -f -a "show" -d 'Show all about one node: its state with the reason, what it has, what runs there, its certificate'
complete -c hostler -n "__fish_hostler_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -f -a "set" -d 'Say what nodes have, for `--constraint`, and which are used first'
complete -c hostler -n "__fish_hostler_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -f -a "drain" -d 'Let nodes finish what they have and give them nothing new'
complete -c hostler -n "__fish_hostler_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -f -a "resume" -d 'Let drained nodes take work again'
complete -c hostler -n "__fish_hostler_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -f -a "power" -d 'Switch a node on or off, or ask its controller how it is'
complete -c hostler -n "__fish_hostler_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -f -a "power-test" -d 'Walk a node through switching on, off and on again, and say what was learnt'
complete -c hostler -n "__fish_hostler_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -f -a "remove" -d 'Remove nodes from the cluster at once and for good'
complete -c hostler -n "__fish_hostler_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -f -a "forget" -d 'Take nodes that are gone for good off the list'
complete -c hostler -n "__fish_hostler_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from list" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from list" -l load -d 'What the nodes tell each other of their load, as the agent of this machine has heard it; needs no head'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from list" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from list" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from discover" -l from -d 'Show what the machine that was captured in this file would offer' -r -F
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from discover" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from discover" -l capture -d 'Print the files that were read instead, as a bug report needs them; names of users and services may be among them'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from discover" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from discover" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from discover" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from invite" -l address -d 'Where that machine finds the head, if it is elsewhere than the head\'s settings say' -r
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from invite" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from invite" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from invite" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from invite" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from show" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from show" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from show" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from set" -l features -d 'What they have beyond what their agents say, such as ssd,rack-2; `none` takes all of that away' -r
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from set" -l weight -d 'Nodes with a lower weight are used first; 0 unless it was set' -r
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from set" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from set" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from set" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from set" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from drain" -l reason -d 'Why, for whoever wonders' -r
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from drain" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from drain" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from drain" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from drain" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from resume" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from resume" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from resume" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from resume" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from power" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from power" -l force -d 'With `off`: take its power away without asking anyone, for a machine that hangs'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from power" -l no-wait -d 'Do not wait until it is done'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from power" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from power" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from power" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from power-test" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from power-test" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from power-test" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from power-test" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from remove" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from remove" -s y -l yes -d 'Do not ask'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from remove" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from remove" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from forget" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from forget" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from forget" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from forget" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from help" -f -a "list" -d 'List the nodes, what they have and what is free'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from help" -f -a "discover" -d 'Show what this machine would offer: CPUs, memory, GPUs, and what it keeps back and why'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from help" -f -a "invite" -d 'Print a join code, with which one machine can become a node within the hour'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from help" -f -a "show" -d 'Show all about one node: its state with the reason, what it has, what runs there, its certificate'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from help" -f -a "set" -d 'Say what nodes have, for `--constraint`, and which are used first'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from help" -f -a "drain" -d 'Let nodes finish what they have and give them nothing new'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from help" -f -a "resume" -d 'Let drained nodes take work again'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from help" -f -a "power" -d 'Switch a node on or off, or ask its controller how it is'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from help" -f -a "power-test" -d 'Walk a node through switching on, off and on again, and say what was learnt'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from help" -f -a "remove" -d 'Remove nodes from the cluster at once and for good'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from help" -f -a "forget" -d 'Take nodes that are gone for good off the list'
complete -c hostler -n "__fish_hostler_using_subcommand node; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c hostler -n "__fish_hostler_using_subcommand login" -l user -d 'Your name in the cluster; the one on this machine by default' -r
complete -c hostler -n "__fish_hostler_using_subcommand login" -l key -d 'The private key to sign with, or a public one whose private one your SSH agent has' -r -F
complete -c hostler -n "__fish_hostler_using_subcommand login" -l authority -d 'The fingerprint of the cluster\'s authority, instead of being asked about it at the first login' -r
complete -c hostler -n "__fish_hostler_using_subcommand login" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand login" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand login" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand login" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c hostler -n "__fish_hostler_using_subcommand logout" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand logout" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand logout" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand logout" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and not __fish_seen_subcommand_from user group audit node partition setting help" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand configure; and not __fish_seen_subcommand_from user group audit node partition setting help" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and not __fish_seen_subcommand_from user group audit node partition setting help" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and not __fish_seen_subcommand_from user group audit node partition setting help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and not __fish_seen_subcommand_from user group audit node partition setting help" -f -a "user" -d 'Users: who is known beyond being known to a machine, and as what'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and not __fish_seen_subcommand_from user group audit node partition setting help" -f -a "group" -d 'Groups: what their users may have together'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and not __fish_seen_subcommand_from user group audit node partition setting help" -f -a "audit" -d 'Show who did what, and what was refused, oldest first'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and not __fish_seen_subcommand_from user group audit node partition setting help" -f -a "node" -d 'Manage nodes: invite, drain, resume, switch on and off, remove; or see what this machine would offer as one'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and not __fish_seen_subcommand_from user group audit node partition setting help" -f -a "partition" -d 'Partitions: parts of the cluster to which jobs are submitted, with limits and a priority of their own'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and not __fish_seen_subcommand_from user group audit node partition setting help" -f -a "setting" -d 'List the settings of the cluster, show one, or change it'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and not __fish_seen_subcommand_from user group audit node partition setting help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from user" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from user" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from user" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from user" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from user" -f -a "add" -d 'Add a user; agents that may create their account on every node'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from user" -f -a "list" -d 'List the users'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from user" -f -a "show" -d 'Show one user'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from user" -f -a "remove" -d 'Remove users and void their logins; their accounts may still use the cluster as `block` says'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from user" -f -a "block" -d 'Keep an account out of the cluster'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from user" -f -a "unblock" -d 'Let blocked accounts in again'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from user" -f -a "role" -d 'Give a user another role, from their next request on'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from user" -f -a "key" -d 'Add and remove SSH keys'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from user" -f -a "import" -d 'Add or change many users from a roster, all of them or none'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from user" -f -a "invite" -d 'Make a login code, good for a day and one use'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from user" -f -a "quota" -d 'Say how much a user may have'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from user" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from group" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from group" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from group" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from group" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from group" -f -a "list" -d 'List the groups that have a quota'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from group" -f -a "quota" -d 'Say how much the users of a group may have together'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from group" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from audit" -l since -d 'Only the last while, such as 2h or 7-00:00:00, by the head\'s wall clock' -r
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from audit" -l limit -d 'At most this many, the newest' -r
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from audit" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from audit" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from audit" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from audit" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from node" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from node" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from node" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from node" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from node" -f -a "list" -d 'List the nodes, what they have and what is free'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from node" -f -a "discover" -d 'Show what this machine would offer: CPUs, memory, GPUs, and what it keeps back and why'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from node" -f -a "invite" -d 'Print a join code, with which one machine can become a node within the hour'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from node" -f -a "show" -d 'Show all about one node: its state with the reason, what it has, what runs there, its certificate'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from node" -f -a "set" -d 'Say what nodes have, for `--constraint`, and which are used first'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from node" -f -a "drain" -d 'Let nodes finish what they have and give them nothing new'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from node" -f -a "resume" -d 'Let drained nodes take work again'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from node" -f -a "power" -d 'Switch a node on or off, or ask its controller how it is'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from node" -f -a "power-test" -d 'Walk a node through switching on, off and on again, and say what was learnt'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from node" -f -a "remove" -d 'Remove nodes from the cluster at once and for good'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from node" -f -a "forget" -d 'Take nodes that are gone for good off the list'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from node" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from partition" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from partition" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from partition" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from partition" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from partition" -f -a "list" -d 'List the partitions'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from partition" -f -a "show" -d 'Show all about one partition'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from partition" -f -a "add" -d 'Add a partition'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from partition" -f -a "set" -d 'Change a partition; what is not named stays as it is, and jobs that wait follow'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from partition" -f -a "remove" -d 'Remove a partition in which no job waits'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from partition" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from setting" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from setting" -l reset -d 'Make it what it is by default'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from setting" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from setting" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from setting" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from help" -f -a "user" -d 'Users: who is known beyond being known to a machine, and as what'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from help" -f -a "group" -d 'Groups: what their users may have together'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from help" -f -a "audit" -d 'Show who did what, and what was refused, oldest first'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from help" -f -a "node" -d 'Manage nodes: invite, drain, resume, switch on and off, remove; or see what this machine would offer as one'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from help" -f -a "partition" -d 'Partitions: parts of the cluster to which jobs are submitted, with limits and a priority of their own'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from help" -f -a "setting" -d 'List the settings of the cluster, show one, or change it'
complete -c hostler -n "__fish_hostler_using_subcommand configure; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c hostler -n "__fish_hostler_using_subcommand head; and not __fish_seen_subcommand_from init run help" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand head; and not __fish_seen_subcommand_from init run help" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand head; and not __fish_seen_subcommand_from init run help" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand head; and not __fish_seen_subcommand_from init run help" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand head; and not __fish_seen_subcommand_from init run help" -f -a "init" -d 'Set up the head of a cluster on this machine: its state directory, the cluster\'s authority and a settings file'
complete -c hostler -n "__fish_hostler_using_subcommand head; and not __fish_seen_subcommand_from init run help" -f -a "run" -d 'Run a head in the foreground; it logs to stderr as HOSTLER_LOG says (info by default)'
complete -c hostler -n "__fish_hostler_using_subcommand head; and not __fish_seen_subcommand_from init run help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c hostler -n "__fish_hostler_using_subcommand head; and __fish_seen_subcommand_from init" -l directory -d 'Keep everything in this directory: state, socket and settings (head.toml)' -r -F
complete -c hostler -n "__fish_hostler_using_subcommand head; and __fish_seen_subcommand_from init" -l listen -d 'Where nodes connect: an address of this machine and a port; by default every address, port 7760' -r
complete -c hostler -n "__fish_hostler_using_subcommand head; and __fish_seen_subcommand_from init" -l advertise -d 'By which name or address nodes reach this machine, the first one in join codes; by default its hostname. May be repeated' -r
complete -c hostler -n "__fish_hostler_using_subcommand head; and __fish_seen_subcommand_from init" -l socket -d 'The Unix socket for users of this machine' -r -F
complete -c hostler -n "__fish_hostler_using_subcommand head; and __fish_seen_subcommand_from init" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand head; and __fish_seen_subcommand_from init" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand head; and __fish_seen_subcommand_from init" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand head; and __fish_seen_subcommand_from init" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c hostler -n "__fish_hostler_using_subcommand head; and __fish_seen_subcommand_from run" -l directory -d 'Where it keeps its state, and its settings if there is a head.toml' -r -F
complete -c hostler -n "__fish_hostler_using_subcommand head; and __fish_seen_subcommand_from run" -l socket -d 'The Unix socket for users of this machine' -r -F
complete -c hostler -n "__fish_hostler_using_subcommand head; and __fish_seen_subcommand_from run" -l listen -d 'Where nodes connect' -r
complete -c hostler -n "__fish_hostler_using_subcommand head; and __fish_seen_subcommand_from run" -l advertise -d 'By which name or address nodes reach this machine; may be repeated' -r
complete -c hostler -n "__fish_hostler_using_subcommand head; and __fish_seen_subcommand_from run" -l results-cap -d 'What results may take before fetched ones are dropped; half of the disk by default' -r
complete -c hostler -n "__fish_hostler_using_subcommand head; and __fish_seen_subcommand_from run" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand head; and __fish_seen_subcommand_from run" -l embedded -d 'The head is part of a cluster on this machine alone'
complete -c hostler -n "__fish_hostler_using_subcommand head; and __fish_seen_subcommand_from run" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand head; and __fish_seen_subcommand_from run" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand head; and __fish_seen_subcommand_from run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c hostler -n "__fish_hostler_using_subcommand head; and __fish_seen_subcommand_from help" -f -a "init" -d 'Set up the head of a cluster on this machine: its state directory, the cluster\'s authority and a settings file'
complete -c hostler -n "__fish_hostler_using_subcommand head; and __fish_seen_subcommand_from help" -f -a "run" -d 'Run a head in the foreground; it logs to stderr as HOSTLER_LOG says (info by default)'
complete -c hostler -n "__fish_hostler_using_subcommand head; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c hostler -n "__fish_hostler_using_subcommand agent; and not __fish_seen_subcommand_from join run help" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand agent; and not __fish_seen_subcommand_from join run help" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand agent; and not __fish_seen_subcommand_from join run help" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand agent; and not __fish_seen_subcommand_from join run help" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand agent; and not __fish_seen_subcommand_from join run help" -f -a "join" -d 'Make this machine a node of a cluster, with a code that `hostler node invite` has printed there'
complete -c hostler -n "__fish_hostler_using_subcommand agent; and not __fish_seen_subcommand_from join run help" -f -a "run" -d 'Run an agent in the foreground; it logs to stderr as HOSTLER_LOG says (info by default)'
complete -c hostler -n "__fish_hostler_using_subcommand agent; and not __fish_seen_subcommand_from join run help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from join" -l name -d 'The node\'s name; by default the one that it was invited under, else this machine\'s' -r
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from join" -l directory -d 'Where the node keeps everything; /var/lib/hostler/agent for root, in the XDG state directory for others' -r -F
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from join" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from join" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from join" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from join" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from run" -l directory -d 'Where it keeps jobs, environments and chunks' -r -F
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from run" -l environments -d 'Where it keeps environments instead; agents of the same user may share it' -r -F
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from run" -l name -d 'The node\'s name, if it must be this one; by default it is what the node has joined as' -r
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from run" -l cpus -d 'The CPUs it gives, such as 0-3,8; by default all that it may use' -r
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from run" -l memory -d 'The memory it gives; by default all less a little' -r
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from run" -l feature -d 'Something that the machine has and others may not have, for `--constraint`, such as ssd; may be repeated. Its architecture, such as x86_64, is one in any case' -r
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from run" -l resource -d 'Something that the machine has and no kernel knows, such as license=10, for jobs to hold with `--resource`; may be repeated' -r
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from run" -l gpus -d 'The GPUs it gives: `all`, `none`, or a list of indices and unique ids; by default all. `hostler node discover` shows them' -r
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from run" -l machine-from -d 'For tests: take the machine for the one that `hostler node discover --capture` has captured in this file' -r -F
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from run" -l start-after -d 'Wait for so long before anything else, as a machine does that starts' -r
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from run" -l socket -d 'The socket for users of this machine; /run/hostler/agent.sock for everybody when root runs the agent in its usual place, agent.sock in its directory otherwise, and none when the head is on this machine' -r -F
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from run" -l gossip -d 'Where it tells other nodes of its load and hears of theirs, by UDP: an address at which they reach this machine and a port, or `none`; by default any address and port 7761, or any port that is free' -r
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from run" -l load-weight -d 'How long it takes for work, compared with a usual node, from 0.01 to 100: 2 is half as fast, and gets fewer commands' -r
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from run" -l memory-weight -d 'How good its memory is, compared with that of a usual node, from 0.01 to 100: 2 is twice as good' -r
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from run" -l table-port -d 'Answer at this port with the loads of all nodes in plain text, one line each; a number alone is a port of the loopback address. Whoever can connect can read it' -r
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from run" -l best-port -d 'Answer at this port with the line of the best node, which then counts as busier for a while' -r
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from run" -l join-file -d 'A file with a join code, for a node that has not joined yet' -r -F
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from run" -l head-file -d 'A file in which a head on this machine says its address' -r -F
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from run" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from run" -l root-jobs -d 'Run jobs of root too; without this an agent of root runs those of all other users, each as its user'
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from run" -l shared-machine -d 'What others do on this machine does not keep it from being switched off: terminals in use, CPUs that are busy. For machines with several nodes'
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from run" -l no-calls -d 'Tell other nodes of its load and hear of theirs, but run no commands for them and send them none: `hostler exec` and `dsh` pass this machine by, and nobody can call them here. Jobs are another matter'
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from run" -l accounts -d 'Create accounts that users of the cluster lack on this machine; only root can'
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from run" -l homes -d 'Create home directories along with accounts'
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from run" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from run" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from help" -f -a "join" -d 'Make this machine a node of a cluster, with a code that `hostler node invite` has printed there'
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from help" -f -a "run" -d 'Run an agent in the foreground; it logs to stderr as HOSTLER_LOG says (info by default)'
complete -c hostler -n "__fish_hostler_using_subcommand agent; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and not __fish_seen_subcommand_from plan apply confirm status start remove client guard help" -l directory -d 'Where the gateway keeps its state' -r -F
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and not __fish_seen_subcommand_from plan apply confirm status start remove client guard help" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and not __fish_seen_subcommand_from plan apply confirm status start remove client guard help" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and not __fish_seen_subcommand_from plan apply confirm status start remove client guard help" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and not __fish_seen_subcommand_from plan apply confirm status start remove client guard help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and not __fish_seen_subcommand_from plan apply confirm status start remove client guard help" -f -a "plan" -d 'Show what `apply` would change, and what of others is in the way; nothing is changed'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and not __fish_seen_subcommand_from plan apply confirm status start remove client guard help" -f -a "apply" -d 'Make the machine what the description says, on trial until it is confirmed'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and not __fish_seen_subcommand_from plan apply confirm status start remove client guard help" -f -a "confirm" -d 'Keep what `apply` has made'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and not __fish_seen_subcommand_from plan apply confirm status start remove client guard help" -f -a "status" -d 'Show how the gateway stands: what is amiss, who has which address, who came in by the VPN'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and not __fish_seen_subcommand_from plan apply confirm status start remove client guard help" -f -a "start" -d 'Make what was confirmed so, as it is done after a boot'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and not __fish_seen_subcommand_from plan apply confirm status start remove client guard help" -f -a "remove" -d 'Take everything away: the machine is as it was found'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and not __fish_seen_subcommand_from plan apply confirm status start remove client guard help" -f -a "client" -d 'Let machines in by the VPN, and out'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and not __fish_seen_subcommand_from plan apply confirm status start remove client guard help" -f -a "guard" -d 'Take back what nobody confirms; `apply` starts it'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and not __fish_seen_subcommand_from plan apply confirm status start remove client guard help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from plan" -s f -l file -d 'The description of the gateway' -r -F
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from plan" -l directory -d 'Where the gateway keeps its state' -r -F
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from plan" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from plan" -l example -d 'Print a description with comments instead, to begin with'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from plan" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from plan" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from plan" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from apply" -s f -l file -d 'The description of the gateway' -r -F
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from apply" -l confirm-within -d 'For how long it waits to be confirmed' -r
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from apply" -l directory -d 'Where the gateway keeps its state' -r -F
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from apply" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from apply" -s y -l yes -d 'Do not wait: it stays, whatever it does'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from apply" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from apply" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from apply" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from confirm" -l directory -d 'Where the gateway keeps its state' -r -F
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from confirm" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from confirm" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from confirm" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from confirm" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from status" -l directory -d 'Where the gateway keeps its state' -r -F
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from status" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from status" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from status" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from status" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from start" -l directory -d 'Where the gateway keeps its state' -r -F
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from start" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from start" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from start" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from start" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from remove" -l directory -d 'Where the gateway keeps its state' -r -F
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from remove" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from remove" -s y -l yes -d 'Do not ask'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from remove" -l keep-clients -d 'Keep the keys and clients of the VPN for the next time: profiles that were handed out stay good'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from remove" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from remove" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from client" -l directory -d 'Where the gateway keeps its state' -r -F
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from client" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from client" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from client" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from client" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from client" -f -a "add" -d 'Let a machine in, and print its profile for WireGuard'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from client" -f -a "list" -d 'List who may come in, and when and from where they did'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from client" -f -a "revoke" -d 'Let a machine in no more, from this moment on'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from client" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from guard" -l directory -d 'Where the gateway keeps its state' -r -F
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from guard" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from guard" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from guard" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from guard" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from help" -f -a "plan" -d 'Show what `apply` would change, and what of others is in the way; nothing is changed'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from help" -f -a "apply" -d 'Make the machine what the description says, on trial until it is confirmed'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from help" -f -a "confirm" -d 'Keep what `apply` has made'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from help" -f -a "status" -d 'Show how the gateway stands: what is amiss, who has which address, who came in by the VPN'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from help" -f -a "start" -d 'Make what was confirmed so, as it is done after a boot'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from help" -f -a "remove" -d 'Take everything away: the machine is as it was found'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from help" -f -a "client" -d 'Let machines in by the VPN, and out'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from help" -f -a "guard" -d 'Take back what nobody confirms; `apply` starts it'
complete -c hostler -n "__fish_hostler_using_subcommand gateway; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c hostler -n "__fish_hostler_using_subcommand ranks" -l count -d 'How many' -r
complete -c hostler -n "__fish_hostler_using_subcommand ranks" -l node-rank -d 'The rank of this node' -r
complete -c hostler -n "__fish_hostler_using_subcommand ranks" -l world-size -d 'How many there are on all nodes' -r
complete -c hostler -n "__fish_hostler_using_subcommand ranks" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand ranks" -l label -d 'Label every line of output with the rank of its writer'
complete -c hostler -n "__fish_hostler_using_subcommand ranks" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand ranks" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand ranks" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand virtual-node" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand virtual-node" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand virtual-node" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand virtual-node" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand seat" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand seat" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand seat" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand seat" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand step" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand step" -l all -d 'On all nodes of the job at once, this one included; every line of output begins with the node\'s name, and the exit code is that of the first node whose command failed'
complete -c hostler -n "__fish_hostler_using_subcommand step" -l no-input -d 'Give the command no standard input'
complete -c hostler -n "__fish_hostler_using_subcommand step" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand step" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand step" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c hostler -n "__fish_hostler_using_subcommand steps" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand steps" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand steps" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand steps" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand sim" -l seed -d 'Run the simulated cluster of this seed once and print the outcome' -r
complete -c hostler -n "__fish_hostler_using_subcommand sim" -l seeds -d 'Run the simulated clusters of these seeds on all CPUs, e.g. 0..1000, and print the seeds that fail' -r
complete -c hostler -n "__fish_hostler_using_subcommand sim" -l threads -d 'With --seeds: how many threads [default: one per CPU]' -r
complete -c hostler -n "__fish_hostler_using_subcommand sim" -l days -d 'With --power: jobs that are submitted within so many days' -r
complete -c hostler -n "__fish_hostler_using_subcommand sim" -l boot -d 'With --power: how long a machine takes to boot' -r
complete -c hostler -n "__fish_hostler_using_subcommand sim" -l policy -d 'fcfs (first come, first served) or easy (backfill)' -r
complete -c hostler -n "__fish_hostler_using_subcommand sim" -l nodes -d 'How many nodes; one by default' -r
complete -c hostler -n "__fish_hostler_using_subcommand sim" -l cpus -d 'CPUs of each node; by default those of the recorded machine' -r
complete -c hostler -n "__fish_hostler_using_subcommand sim" -l memory -d 'Memory of each node; by default as much as any job asks for' -r
complete -c hostler -n "__fish_hostler_using_subcommand sim" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand sim" -l whole-story -d 'With --seed: if it fails, print every event and not only the last ones'
complete -c hostler -n "__fish_hostler_using_subcommand sim" -l power -d 'Switch machines on and off, and compare what is drawn and what jobs wait: machines that are always on, a script that looks every two minutes, and the head\'s own policy at three settings'
complete -c hostler -n "__fish_hostler_using_subcommand sim" -l home-lab -d 'With --power: thirty days of made-up arrivals as in a home lab, in place of a trace; on six nodes of 8 CPUs unless others are said'
complete -c hostler -n "__fish_hostler_using_subcommand sim" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand sim" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand sim" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c hostler -n "__fish_hostler_using_subcommand shims" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand shims" -l relative -d 'Make links that stay right when this program and the folder are moved together'
complete -c hostler -n "__fish_hostler_using_subcommand shims" -l list -d 'Only print the names of the tools'
complete -c hostler -n "__fish_hostler_using_subcommand shims" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand shims" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand shims" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c hostler -n "__fish_hostler_using_subcommand completions" -l tool -d 'The tool to complete' -r
complete -c hostler -n "__fish_hostler_using_subcommand completions" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand completions" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand completions" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand completions" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c hostler -n "__fish_hostler_using_subcommand gen" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c hostler -n "__fish_hostler_using_subcommand gen" -l json -d 'Print data as JSON'
complete -c hostler -n "__fish_hostler_using_subcommand gen" -s q -l quiet -d 'Say nothing but data and errors'
complete -c hostler -n "__fish_hostler_using_subcommand gen" -s h -l help -d 'Print help'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "demo" -d 'Show what Hostler does, start to finish, on this machine; leaves nothing behind but the results'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "up" -d 'Start a cluster on this machine: a head and virtual nodes that share its resources'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "down" -d 'Stop the cluster on this machine; its state and results stay for the next `hostler up`'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "submit" -d 'Queue a project folder; prints the job\'s id'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "run" -d 'Queue a command, show its output as it appears, and exit with its exit code'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "exec" -d 'Run a command now, on the node with the most room, as if it ran here'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "jobs" -d 'List jobs that have not ended, newest first'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "job" -d 'Show everything about a job, or about one task of an array'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "why" -d 'Say why a job or a task of an array waits, and when it should start'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "logs" -d 'Print what jobs write: their stdout to stdout, their stderr and the preparation of their environment to stderr'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "wait" -d 'Wait until jobs or tasks have ended; the exit code is 0 if all of them completed, 1 if not'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "fetch" -d 'Bring results home'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "cancel" -d 'End jobs; what they made so far still comes home'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "hold" -d 'Keep waiting jobs from starting'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "release" -d 'Let held jobs start'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "requeue" -d 'Run jobs again from the start, whether they run or have ended'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "attach" -d 'Join the terminal of a job that was submitted with --pty; Ctrl-A d leaves it, and the job goes on'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "info" -d 'Show the cluster at a glance'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "nodes" -d 'List the nodes, what they have and what is free'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "node" -d 'Manage nodes: invite, drain, resume, switch on and off, remove; or see what this machine would offer as one'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "login" -d 'Log in to a cluster from a machine that is none of its nodes'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "logout" -d 'Give back the token of a login'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "configure" -d 'Set the cluster up: users, quotas, nodes, partitions and settings, and a look at who did what'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "head" -d 'The head of a cluster: takes jobs, decides what runs where, keeps results'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "agent" -d 'The agent of a node: runs jobs and brings their results to the head'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "gateway" -d 'Make this machine the gateway of its nodes: router, DHCP and DNS server, and VPN endpoint'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "ranks" -d 'Start the processes of a run on this node, each with its rank'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "virtual-node" -d 'Start or stop the agent of a virtual node, or print whether it runs'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "seat" -d 'Run a command in the foreground of this terminal, so that it can be stopped and continued'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "step" -d 'Run a command on another node of the job that this is called in'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "steps" -d 'Take the steps of a job on this node'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "sim" -d 'Replay a recorded workload through the scheduler on a virtual clock and print how well it was served'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "shims" -d 'Make links by which this program is called as other tools: cminfo, cmrun, cmkill and more'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "completions" -d 'Print a completion script for a shell'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "gen" -d 'Write the command reference, completions, man pages and API description into a folder'
complete -c hostler -n "__fish_hostler_using_subcommand help; and not __fish_seen_subcommand_from demo up down submit run exec jobs job why logs wait fetch cancel hold release requeue attach info nodes node login logout configure head agent gateway ranks virtual-node seat step steps sim shims completions gen help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c hostler -n "__fish_hostler_using_subcommand help; and __fish_seen_subcommand_from node" -f -a "list" -d 'List the nodes, what they have and what is free'
complete -c hostler -n "__fish_hostler_using_subcommand help; and __fish_seen_subcommand_from node" -f -a "discover" -d 'Show what this machine would offer: CPUs, memory, GPUs, and what it keeps back and why'
complete -c hostler -n "__fish_hostler_using_subcommand help; and __fish_seen_subcommand_from node" -f -a "invite" -d 'Print a join code, with which one machine can become a node within the hour'
complete -c hostler -n "__fish_hostler_using_subcommand help; and __fish_seen_subcommand_from node" -f -a "show" -d 'Show all about one node: its state with the reason, what it has, what runs there, its certificate'
complete -c hostler -n "__fish_hostler_using_subcommand help; and __fish_seen_subcommand_from node" -f -a "set" -d 'Say what nodes have, for `--constraint`, and which are used first'
complete -c hostler -n "__fish_hostler_using_subcommand help; and __fish_seen_subcommand_from node" -f -a "drain" -d 'Let nodes finish what they have and give them nothing new'
complete -c hostler -n "__fish_hostler_using_subcommand help; and __fish_seen_subcommand_from node" -f -a "resume" -d 'Let drained nodes take work again'
complete -c hostler -n "__fish_hostler_using_subcommand help; and __fish_seen_subcommand_from node" -f -a "power" -d 'Switch a node on or off, or ask its controller how it is'
complete -c hostler -n "__fish_hostler_using_subcommand help; and __fish_seen_subcommand_from node" -f -a "power-test" -d 'Walk a node through switching on, off and on again, and say what was learnt'
complete -c hostler -n "__fish_hostler_using_subcommand help; and __fish_seen_subcommand_from node" -f -a "remove" -d 'Remove nodes from the cluster at once and for good'
complete -c hostler -n "__fish_hostler_using_subcommand help; and __fish_seen_subcommand_from node" -f -a "forget" -d 'Take nodes that are gone for good off the list'
complete -c hostler -n "__fish_hostler_using_subcommand help; and __fish_seen_subcommand_from configure" -f -a "user" -d 'Users: who is known beyond being known to a machine, and as what'
complete -c hostler -n "__fish_hostler_using_subcommand help; and __fish_seen_subcommand_from configure" -f -a "group" -d 'Groups: what their users may have together'
complete -c hostler -n "__fish_hostler_using_subcommand help; and __fish_seen_subcommand_from configure" -f -a "audit" -d 'Show who did what, and what was refused, oldest first'
complete -c hostler -n "__fish_hostler_using_subcommand help; and __fish_seen_subcommand_from configure" -f -a "node" -d 'Manage nodes: invite, drain, resume, switch on and off, remove; or see what this machine would offer as one'
complete -c hostler -n "__fish_hostler_using_subcommand help; and __fish_seen_subcommand_from configure" -f -a "partition" -d 'Partitions: parts of the cluster to which jobs are submitted, with limits and a priority of their own'
complete -c hostler -n "__fish_hostler_using_subcommand help; and __fish_seen_subcommand_from configure" -f -a "setting" -d 'List the settings of the cluster, show one, or change it'
complete -c hostler -n "__fish_hostler_using_subcommand help; and __fish_seen_subcommand_from head" -f -a "init" -d 'Set up the head of a cluster on this machine: its state directory, the cluster\'s authority and a settings file'
complete -c hostler -n "__fish_hostler_using_subcommand help; and __fish_seen_subcommand_from head" -f -a "run" -d 'Run a head in the foreground; it logs to stderr as HOSTLER_LOG says (info by default)'
complete -c hostler -n "__fish_hostler_using_subcommand help; and __fish_seen_subcommand_from agent" -f -a "join" -d 'Make this machine a node of a cluster, with a code that `hostler node invite` has printed there'
complete -c hostler -n "__fish_hostler_using_subcommand help; and __fish_seen_subcommand_from agent" -f -a "run" -d 'Run an agent in the foreground; it logs to stderr as HOSTLER_LOG says (info by default)'
complete -c hostler -n "__fish_hostler_using_subcommand help; and __fish_seen_subcommand_from gateway" -f -a "plan" -d 'Show what `apply` would change, and what of others is in the way; nothing is changed'
complete -c hostler -n "__fish_hostler_using_subcommand help; and __fish_seen_subcommand_from gateway" -f -a "apply" -d 'Make the machine what the description says, on trial until it is confirmed'
complete -c hostler -n "__fish_hostler_using_subcommand help; and __fish_seen_subcommand_from gateway" -f -a "confirm" -d 'Keep what `apply` has made'
complete -c hostler -n "__fish_hostler_using_subcommand help; and __fish_seen_subcommand_from gateway" -f -a "status" -d 'Show how the gateway stands: what is amiss, who has which address, who came in by the VPN'
complete -c hostler -n "__fish_hostler_using_subcommand help; and __fish_seen_subcommand_from gateway" -f -a "start" -d 'Make what was confirmed so, as it is done after a boot'
complete -c hostler -n "__fish_hostler_using_subcommand help; and __fish_seen_subcommand_from gateway" -f -a "remove" -d 'Take everything away: the machine is as it was found'
complete -c hostler -n "__fish_hostler_using_subcommand help; and __fish_seen_subcommand_from gateway" -f -a "client" -d 'Let machines in by the VPN, and out'
complete -c hostler -n "__fish_hostler_using_subcommand help; and __fish_seen_subcommand_from gateway" -f -a "guard" -d 'Take back what nobody confirms; `apply` starts it'
