"""What depends on what? The work of each device, the calls that hand it over, and the graph that ties them together."""
