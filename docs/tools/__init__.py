"""What the documents are made with: their pictures, the site's pages, and the list of what a release still needs."""
