complete -c cmdaemon -l head -d 'This machine is the head'
complete -c cmdaemon -l compute -d 'This machine is a compute node'
complete -c cmdaemon -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cmdaemon -s V -l version -d 'Print version'
