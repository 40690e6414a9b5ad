"""Tables, plots, HTML, JUnit."""
