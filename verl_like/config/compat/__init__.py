"""Commands and files of verl, EasyR1 and OpenRLHF, and what each of their keys is here."""
