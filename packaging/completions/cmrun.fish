complete -c cmrun -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmrun -s a -l alias -d 'A name for the job; by default the first word of the command' -r
complete -c cmrun -s n -l nodes -d 'Run it on N nodes at once; 1 by default' -r
complete -c cmrun -s p -l processes -d 'Start N processes on each node; 1 by default' -r
complete -c cmrun -l num-cpus-per-node -d 'CPUs on each node; 1 by default' -r
complete -c cmrun -l mem-per-node -d 'Memory on each node, in megabytes, or with a unit such as 2G; 100 by default' -r
complete -c cmrun -l gpus -d 'GPUs on each node; none by default, and then it sees none' -r
complete -c cmrun -s t -l time-limit -d 'Time limit in hours, such as 1 or 0.25; none with 0 or less, and by default' -r
complete -c cmrun -l json -d 'Print data as JSON'
complete -c cmrun -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmrun -s w -l wait -d 'Wait for the job, show its output, and exit with its exit code as `hostler run` does'
complete -c cmrun -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cmrun -s V -l version -d 'Print version'
