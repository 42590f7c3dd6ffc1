complete -c cminfo -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cminfo -l json -d 'Print data as JSON'
complete -c cminfo -s q -l quiet -d 'Say nothing but data and errors'
complete -c cminfo -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cminfo -s V -l version -d 'Print version'
