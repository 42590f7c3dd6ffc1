complete -c dsh -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c dsh -s m -l memory -d 'Only on nodes that can spare so much memory, which is then all that the command may have' -r
complete -c dsh -l constraint -l feature -d 'Only on nodes with these features, such as \'gpu&ssd\'' -r
complete -c dsh -l node -d 'On this node; of several, on the best of them' -r
complete -c dsh -l not -d 'Not on this node; may be repeated' -r
complete -c dsh -s C -l directory -d 'Start in this directory of the node, whatever is there, and not in the one that this is called in' -r -F
complete -c dsh -l ship -d 'Take the tree along that this directory is in, to a node that does not share the disk, and bring back what the command writes there. The tree is DIR, else the nearest directory above that is under version control, else this directory' -r
complete -c dsh -l nodes -d 'On each of these nodes at once, such as n1,n2, as with --all' -r
complete -c dsh -l json -d 'Print data as JSON'
complete -c dsh -s q -l quiet -d 'Say nothing but data and errors'
complete -c dsh -l prefer-local -d 'Here, unless another node is much better'
complete -c dsh -l any-program -d 'With --ship, let the node\'s program of that name be another one than this machine\'s'
complete -c dsh -s n -l no-input -d 'Give the command no standard input'
complete -c dsh -s T -l no-terminal -d 'Give the command no terminal even if there is one here'
complete -c dsh -l where -d 'Say afterwards on standard error where it ran, how that node was judged, and how long it took'
complete -c dsh -l explain -d 'Print how all nodes are judged, and run nothing'
complete -c dsh -l all -d 'On all nodes at once: every line of output begins with the node\'s name, and a summary of exit codes follows'
complete -c dsh -l rsh -d 'Take the command line of `rsh` or `ssh`: options, a node, and words for a shell there; for programs that launch by one of these'
complete -c dsh -s h -l help -d 'Print help'
complete -c dsh -s V -l version -d 'Print version'
