"""Videos of episodes side by side: what is drawn into them, and the files that hold them."""
