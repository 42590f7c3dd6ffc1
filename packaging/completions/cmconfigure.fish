# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_cmconfigure_global_optspecs
    string join \n head= json q/quiet h/help V/version
end

function __fish_cmconfigure_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_cmconfigure_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_cmconfigure_using_subcommand
    set -l cmd (__fish_cmconfigure_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c cmconfigure -n "__fish_cmconfigure_needs_command" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_needs_command" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_needs_command" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cmconfigure -n "__fish_cmconfigure_needs_command" -s V -l version -d 'Print version'
complete -c cmconfigure -n "__fish_cmconfigure_needs_command" -f -a "user" -d 'Users: who is known beyond being known to a machine, and as what'
complete -c cmconfigure -n "__fish_cmconfigure_needs_command" -f -a "group" -d 'Groups: what their users may have together'
complete -c cmconfigure -n "__fish_cmconfigure_needs_command" -f -a "audit" -d 'Show who did what, and what was refused, oldest first'
complete -c cmconfigure -n "__fish_cmconfigure_needs_command" -f -a "node" -d 'Manage nodes: invite, drain, resume, switch on and off, remove; or see what this machine would offer as one'
complete -c cmconfigure -n "__fish_cmconfigure_needs_command" -f -a "partition" -d 'Partitions: parts of the cluster to which jobs are submitted, with limits and a priority of their own'
complete -c cmconfigure -n "__fish_cmconfigure_needs_command" -f -a "setting" -d 'List the settings of the cluster, show one, or change it'
complete -c cmconfigure -n "__fish_cmconfigure_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and not __fish_seen_subcommand_from add list show remove block unblock role key import invite quota help" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and not __fish_seen_subcommand_from add list show remove block unblock role key import invite quota help" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and not __fish_seen_subcommand_from add list show remove block unblock role key import invite quota help" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and not __fish_seen_subcommand_from add list show remove block unblock role key import invite quota help" -s h -l help -d 'Print help'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and not __fish_seen_subcommand_from add list show remove block unblock role key import invite quota help" -f -a "add" -d 'Add a user; agents that may create their account on every node'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and not __fish_seen_subcommand_from add list show remove block unblock role key import invite quota help" -f -a "list" -d 'List the users'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and not __fish_seen_subcommand_from add list show remove block unblock role key import invite quota help" -f -a "show" -d 'Show one user'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and not __fish_seen_subcommand_from add list show remove block unblock role key import invite quota help" -f -a "remove" -d 'Remove users and void their logins; their accounts may still use the cluster as `block` says'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and not __fish_seen_subcommand_from add list show remove block unblock role key import invite quota help" -f -a "block" -d 'Keep an account out of the cluster'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and not __fish_seen_subcommand_from add list show remove block unblock role key import invite quota help" -f -a "unblock" -d 'Let blocked accounts in again'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and not __fish_seen_subcommand_from add list show remove block unblock role key import invite quota help" -f -a "role" -d 'Give a user another role, from their next request on'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and not __fish_seen_subcommand_from add list show remove block unblock role key import invite quota help" -f -a "key" -d 'Add and remove SSH keys'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and not __fish_seen_subcommand_from add list show remove block unblock role key import invite quota help" -f -a "import" -d 'Add or change many users from a roster, all of them or none'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and not __fish_seen_subcommand_from add list show remove block unblock role key import invite quota help" -f -a "invite" -d 'Make a login code, good for a day and one use'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and not __fish_seen_subcommand_from add list show remove block unblock role key import invite quota help" -f -a "quota" -d 'Say how much a user may have'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and not __fish_seen_subcommand_from add list show remove block unblock role key import invite quota help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from add" -l uid -d 'The uid on all machines; by default that of the account of this name here, or one that is free' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from add" -l role -d 'user, operator or admin' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from add" -l group -d 'A group whose quota counts; may be repeated' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from add" -l key -d 'A file with an SSH public key; may be repeated' -r -F
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from add" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from add" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from add" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from list" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from list" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from list" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from show" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from show" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from show" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from remove" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from remove" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from remove" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from block" -l reason -d 'Why, for the user to read' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from block" -l uid -d 'The account\'s uid, if neither the cluster nor the head\'s machine knows it' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from block" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from block" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from block" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from block" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from unblock" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from unblock" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from unblock" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from unblock" -s h -l help -d 'Print help'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from role" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from role" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from role" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from role" -s h -l help -d 'Print help'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from key" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from key" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from key" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from key" -s h -l help -d 'Print help'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from key" -f -a "add" -d 'Add public keys to a user'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from key" -f -a "remove" -d 'Take public keys from a user'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from key" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from import" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from import" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from import" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from import" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from invite" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from invite" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from invite" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from invite" -s h -l help -d 'Print help'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from quota" -l cpus -d 'CPUs of what runs, or `none`' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from quota" -l memory -d 'Memory of what runs, such as 64G, or `none`' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from quota" -l jobs -d 'Tasks that run, or `none`; a job that is no array is one' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from quota" -l queued -d 'Tasks that wait, or `none`' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from quota" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from quota" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from quota" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from quota" -s h -l help -d 'Print help'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from help" -f -a "add" -d 'Add a user; agents that may create their account on every node'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from help" -f -a "list" -d 'List the users'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from help" -f -a "show" -d 'Show one user'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from help" -f -a "remove" -d 'Remove users and void their logins; their accounts may still use the cluster as `block` says'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from help" -f -a "block" -d 'Keep an account out of the cluster'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from help" -f -a "unblock" -d 'Let blocked accounts in again'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from help" -f -a "role" -d 'Give a user another role, from their next request on'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from help" -f -a "key" -d 'Add and remove SSH keys'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from help" -f -a "import" -d 'Add or change many users from a roster, all of them or none'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from help" -f -a "invite" -d 'Make a login code, good for a day and one use'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from help" -f -a "quota" -d 'Say how much a user may have'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand user; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand group; and not __fish_seen_subcommand_from list quota help" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand group; and not __fish_seen_subcommand_from list quota help" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand group; and not __fish_seen_subcommand_from list quota help" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand group; and not __fish_seen_subcommand_from list quota help" -s h -l help -d 'Print help'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand group; and not __fish_seen_subcommand_from list quota help" -f -a "list" -d 'List the groups that have a quota'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand group; and not __fish_seen_subcommand_from list quota help" -f -a "quota" -d 'Say how much the users of a group may have together'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand group; and not __fish_seen_subcommand_from list quota help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand group; and __fish_seen_subcommand_from list" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand group; and __fish_seen_subcommand_from list" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand group; and __fish_seen_subcommand_from list" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand group; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand group; and __fish_seen_subcommand_from quota" -l cpus -d 'CPUs of what runs, or `none`' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand group; and __fish_seen_subcommand_from quota" -l memory -d 'Memory of what runs, such as 64G, or `none`' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand group; and __fish_seen_subcommand_from quota" -l jobs -d 'Tasks that run, or `none`; a job that is no array is one' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand group; and __fish_seen_subcommand_from quota" -l queued -d 'Tasks that wait, or `none`' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand group; and __fish_seen_subcommand_from quota" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand group; and __fish_seen_subcommand_from quota" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand group; and __fish_seen_subcommand_from quota" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand group; and __fish_seen_subcommand_from quota" -s h -l help -d 'Print help'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand group; and __fish_seen_subcommand_from help" -f -a "list" -d 'List the groups that have a quota'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand group; and __fish_seen_subcommand_from help" -f -a "quota" -d 'Say how much the users of a group may have together'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand group; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand audit" -l since -d 'Only the last while, such as 2h or 7-00:00:00, by the head\'s wall clock' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand audit" -l limit -d 'At most this many, the newest' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand audit" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand audit" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand audit" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand audit" -s h -l help -d 'Print help'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -s h -l help -d 'Print help'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -f -a "list" -d 'List the nodes, what they have and what is free'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -f -a "discover" -d 'Show what this machine would offer: CPUs, memory, GPUs, and what it keeps back and why'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -f -a "invite" -d 'Print a join code, with which one machine can become a node within the hour'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -f -a "show" -d 'Show all about one node: its state with the reason, what it has, what runs there, its certificate'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -f -a "set" -d 'Say what nodes have, for `--constraint`, and which are used first'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -f -a "drain" -d 'Let nodes finish what they have and give them nothing new'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -f -a "resume" -d 'Let drained nodes take work again'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -f -a "power" -d 'Switch a node on or off, or ask its controller how it is'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -f -a "power-test" -d 'Walk a node through switching on, off and on again, and say what was learnt'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -f -a "remove" -d 'Remove nodes from the cluster at once and for good'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -f -a "forget" -d 'Take nodes that are gone for good off the list'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and not __fish_seen_subcommand_from list discover invite show set drain resume power power-test remove forget help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from list" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from list" -l load -d 'What the nodes tell each other of their load, as the agent of this machine has heard it; needs no head'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from list" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from list" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from discover" -l from -d 'Show what the machine that was captured in this file would offer' -r -F
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from discover" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from discover" -l capture -d 'Print the files that were read instead, as a bug report needs them; names of users and services may be among them'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from discover" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from discover" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from discover" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from invite" -l address -d 'Where that machine finds the head, if it is elsewhere than the head\'s settings say' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from invite" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from invite" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from invite" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from invite" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from show" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from show" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from show" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from set" -l features -d 'What they have beyond what their agents say, such as ssd,rack-2; `none` takes all of that away' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from set" -l weight -d 'Nodes with a lower weight are used first; 0 unless it was set' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from set" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from set" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from set" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from set" -s h -l help -d 'Print help'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from drain" -l reason -d 'Why, for whoever wonders' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from drain" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from drain" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from drain" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from drain" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from resume" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from resume" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from resume" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from resume" -s h -l help -d 'Print help'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from power" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from power" -l force -d 'With `off`: take its power away without asking anyone, for a machine that hangs'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from power" -l no-wait -d 'Do not wait until it is done'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from power" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from power" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from power" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from power-test" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from power-test" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from power-test" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from power-test" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from remove" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from remove" -s y -l yes -d 'Do not ask'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from remove" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from remove" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from forget" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from forget" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from forget" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from forget" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from help" -f -a "list" -d 'List the nodes, what they have and what is free'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from help" -f -a "discover" -d 'Show what this machine would offer: CPUs, memory, GPUs, and what it keeps back and why'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from help" -f -a "invite" -d 'Print a join code, with which one machine can become a node within the hour'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from help" -f -a "show" -d 'Show all about one node: its state with the reason, what it has, what runs there, its certificate'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from help" -f -a "set" -d 'Say what nodes have, for `--constraint`, and which are used first'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from help" -f -a "drain" -d 'Let nodes finish what they have and give them nothing new'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from help" -f -a "resume" -d 'Let drained nodes take work again'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from help" -f -a "power" -d 'Switch a node on or off, or ask its controller how it is'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from help" -f -a "power-test" -d 'Walk a node through switching on, off and on again, and say what was learnt'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from help" -f -a "remove" -d 'Remove nodes from the cluster at once and for good'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from help" -f -a "forget" -d 'Take nodes that are gone for good off the list'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand node; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and not __fish_seen_subcommand_from list show add set remove help" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and not __fish_seen_subcommand_from list show add set remove help" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and not __fish_seen_subcommand_from list show add set remove help" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and not __fish_seen_subcommand_from list show add set remove help" -s h -l help -d 'Print help'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and not __fish_seen_subcommand_from list show add set remove help" -f -a "list" -d 'List the partitions'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and not __fish_seen_subcommand_from list show add set remove help" -f -a "show" -d 'Show all about one partition'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and not __fish_seen_subcommand_from list show add set remove help" -f -a "add" -d 'Add a partition'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and not __fish_seen_subcommand_from list show add set remove help" -f -a "set" -d 'Change a partition; what is not named stays as it is, and jobs that wait follow'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and not __fish_seen_subcommand_from list show add set remove help" -f -a "remove" -d 'Remove a partition in which no job waits'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and not __fish_seen_subcommand_from list show add set remove help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from list" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from list" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from list" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from show" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from show" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from show" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from add" -l nodes -d 'Which nodes are in it, by their names: n1,n3 or n[1-4,7] or gpu* or * for all' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from add" -l default -d 'Jobs that name no partition go there; one partition at most is that' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from add" -l default-time -d 'The time limit of jobs that do not say one, or `none`' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from add" -l max-time -d 'The longest time limit that a job may have, or `none`' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from add" -l max-nodes -d 'The most nodes that a job may ask for, or `none`' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from add" -l priority -d 'Jobs of a partition with a higher one go first, whatever their own' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from add" -l users -d 'Who may use it: users, or `all`' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from add" -l groups -d 'Whose users may use it besides: groups of the cluster, or `all`' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from add" -l state -d '`open`, `paused` (takes jobs and starts none) or `closed` (takes none, those that wait start)' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from add" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from add" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from add" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from set" -l nodes -d 'Which nodes are in it, by their names: n1,n3 or n[1-4,7] or gpu* or * for all' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from set" -l default -d 'Jobs that name no partition go there; one partition at most is that' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from set" -l default-time -d 'The time limit of jobs that do not say one, or `none`' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from set" -l max-time -d 'The longest time limit that a job may have, or `none`' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from set" -l max-nodes -d 'The most nodes that a job may ask for, or `none`' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from set" -l priority -d 'Jobs of a partition with a higher one go first, whatever their own' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from set" -l users -d 'Who may use it: users, or `all`' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from set" -l groups -d 'Whose users may use it besides: groups of the cluster, or `all`' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from set" -l state -d '`open`, `paused` (takes jobs and starts none) or `closed` (takes none, those that wait start)' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from set" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from set" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from set" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from set" -s h -l help -d 'Print help'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from remove" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from remove" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from remove" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from help" -f -a "list" -d 'List the partitions'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from help" -f -a "show" -d 'Show all about one partition'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from help" -f -a "add" -d 'Add a partition'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from help" -f -a "set" -d 'Change a partition; what is not named stays as it is, and jobs that wait follow'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from help" -f -a "remove" -d 'Remove a partition in which no job waits'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand partition; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand setting" -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand setting" -l reset -d 'Make it what it is by default'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand setting" -l json -d 'Print data as JSON'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand setting" -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand setting" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and not __fish_seen_subcommand_from user group audit node partition setting help" -f -a "user" -d 'Users: who is known beyond being known to a machine, and as what'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and not __fish_seen_subcommand_from user group audit node partition setting help" -f -a "group" -d 'Groups: what their users may have together'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and not __fish_seen_subcommand_from user group audit node partition setting help" -f -a "audit" -d 'Show who did what, and what was refused, oldest first'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and not __fish_seen_subcommand_from user group audit node partition setting help" -f -a "node" -d 'Manage nodes: invite, drain, resume, switch on and off, remove; or see what this machine would offer as one'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and not __fish_seen_subcommand_from user group audit node partition setting help" -f -a "partition" -d 'Partitions: parts of the cluster to which jobs are submitted, with limits and a priority of their own'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and not __fish_seen_subcommand_from user group audit node partition setting help" -f -a "setting" -d 'List the settings of the cluster, show one, or change it'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and not __fish_seen_subcommand_from user group audit node partition setting help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and __fish_seen_subcommand_from user" -f -a "add" -d 'Add a user; agents that may create their account on every node'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and __fish_seen_subcommand_from user" -f -a "list" -d 'List the users'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and __fish_seen_subcommand_from user" -f -a "show" -d 'Show one user'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and __fish_seen_subcommand_from user" -f -a "remove" -d 'Remove users and void their logins; their accounts may still use the cluster as `block` says'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and __fish_seen_subcommand_from user" -f -a "block" -d 'Keep an account out of the cluster'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and __fish_seen_subcommand_from user" -f -a "unblock" -d 'Let blocked accounts in again'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and __fish_seen_subcommand_from user" -f -a "role" -d 'Give a user another role, from their next request on'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and __fish_seen_subcommand_from user" -f -a "key" -d 'Add and remove SSH keys'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and __fish_seen_subcommand_from user" -f -a "import" -d 'Add or change many users from a roster, all of them or none'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and __fish_seen_subcommand_from user" -f -a "invite" -d 'Make a login code, good for a day and one use'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and __fish_seen_subcommand_from user" -f -a "quota" -d 'Say how much a user may have'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and __fish_seen_subcommand_from group" -f -a "list" -d 'List the groups that have a quota'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and __fish_seen_subcommand_from group" -f -a "quota" -d 'Say how much the users of a group may have together'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and __fish_seen_subcommand_from node" -f -a "list" -d 'List the nodes, what they have and what is free'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and __fish_seen_subcommand_from node" -f -a "discover" -d 'Show what this machine would offer: CPUs, memory, GPUs, and what it keeps back and why'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and __fish_seen_subcommand_from node" -f -a "invite" -d 'Print a join code, with which one machine can become a node within the hour'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and __fish_seen_subcommand_from node" -f -a "show" -d 'Show all about one node: its state with the reason, what it has, what runs there, its certificate'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and __fish_seen_subcommand_from node" -f -a "set" -d 'Say what nodes have, for `--constraint`, and which are used first'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and __fish_seen_subcommand_from node" -f -a "drain" -d 'Let nodes finish what they have and give them nothing new'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and __fish_seen_subcommand_from node" -f -a "resume" -d 'Let drained nodes take work again'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and __fish_seen_subcommand_from node" -f -a "power" -d 'Switch a node on or off, or ask its controller how it is'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and __fish_seen_subcommand_from node" -f -a "power-test" -d 'Walk a node through switching on, off and on again, and say what was learnt'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and __fish_seen_subcommand_from node" -f -a "remove" -d 'Remove nodes from the cluster at once and for good'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and __fish_seen_subcommand_from node" -f -a "forget" -d 'Take nodes that are gone for good off the list'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and __fish_seen_subcommand_from partition" -f -a "list" -d 'List the partitions'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and __fish_seen_subcommand_from partition" -f -a "show" -d 'Show all about one partition'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and __fish_seen_subcommand_from partition" -f -a "add" -d 'Add a partition'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and __fish_seen_subcommand_from partition" -f -a "set" -d 'Change a partition; what is not named stays as it is, and jobs that wait follow'
complete -c cmconfigure -n "__fish_cmconfigure_using_subcommand help; and __fish_seen_subcommand_from partition" -f -a "remove" -d 'Remove a partition in which no job waits'
