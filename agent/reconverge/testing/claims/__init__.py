"""The promises of every hub, each as a test (a claim), and the scenes in which claims are tested."""
