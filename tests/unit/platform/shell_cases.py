"""Lists of classes that sites and servers may have."""

OLD_LIST = '{"class_allow_list": ["nvflare.x.Own", "flareclust."]}'

TOO_WIDE = "lets jobs call every function of flareclust ('flareclust.' in local/resources.json); run `flareclust site allow KIT` there"
