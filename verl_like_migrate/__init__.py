"""Translation of commands and files of verl, EasyR1 and OpenRLHF into options of verl_like."""
