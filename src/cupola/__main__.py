from cupola.cli import main

main()
