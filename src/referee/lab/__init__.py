"""The claims of a course on measuring and on eager mode, each as an experiment that anybody can run."""
