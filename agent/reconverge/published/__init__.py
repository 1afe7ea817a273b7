"""What operators publish for a whole fleet: how it is signed and judged, and the one reader that every node has."""
