"""What does one operator's call consist of? A ladder of stages, the dispatch path, and the tape.

Needs torch; with a C++ compiler a small probe is built once per torch build, otherwise fewer stages can be told apart.
"""
