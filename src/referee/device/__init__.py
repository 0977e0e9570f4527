"""How is work on this device started, awaited and timed? One file per backend behind one protocol."""
