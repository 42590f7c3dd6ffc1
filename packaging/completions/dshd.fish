complete -c dshd -s f -d 'The file that lists the machines of the cluster; by default /etc/hostler/dsh.conf, if there is one' -r -F
complete -c dshd -s t -d 'The port that tells the full table, of the loopback address unless another is named; by default 8181, or what agent.toml says' -r
complete -c dshd -s r -d 'The port that tells the best node; by default 8282, or what agent.toml says' -r
complete -c dshd -s b -d 'Go to the background once the ports are open'
complete -c dshd -s p -d 'Print the process id of the daemon in the background'
complete -c dshd -l announce -d 'For -b: be the daemon, and say on standard output that it is up, or why it is not'
complete -c dshd -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dshd -s V -l version -d 'Print version'
