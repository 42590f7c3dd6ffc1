complete -c cmkill -l head -d 'The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login' -r
complete -c cmkill -l json -d 'Print data as JSON'
complete -c cmkill -s q -l quiet -d 'Say nothing but data and errors'
complete -c cmkill -s h -l help -d 'Print help'
complete -c cmkill -s V -l version -d 'Print version'
