"""Where the keys of requests are found without an object for the request."""
