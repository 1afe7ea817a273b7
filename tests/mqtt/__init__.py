"""Members that meet at a broker of MQTT."""
