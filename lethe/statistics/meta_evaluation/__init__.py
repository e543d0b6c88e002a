"""What a number about forgetting is worth, from its values on models whose knowledge is known: arrays in, results out."""
