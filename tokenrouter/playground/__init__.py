"""`trc playground`: a web page on this machine to write a policy in, see what the compiler sees, and ask which rule fires."""
