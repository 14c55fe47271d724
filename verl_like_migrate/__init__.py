"""Commands and files of verl, EasyR1 and OpenRLHF, and the option of verl_like that each of their keys is."""
