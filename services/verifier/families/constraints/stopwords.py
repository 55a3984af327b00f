"""Common words of the languages that share a script. Invariant: plain data, in folded case, written for this project."""

# ruff: noqa: RUF001 (words of many scripts)
from __future__ import annotations

_LATIN = {
    "en": "the of and to in is was that it for with as on be by this are from at have not but they which or his had "
    "you we an will would there their been has more if can about what who when your also than its into only",
    "es": "el la los las de que y en un una es por con para como más pero sus le ya este sí porque esta entre cuando muy "
    "sin sobre también fue hasta hay donde quien desde todo nos durante del al se no lo su está son tiene puede",
    "pt": "o os as de que e em um uma é por com para como mais mas dos das não na no ao se ele ela seu sua quando muito "
    "nos já também só pelo pela até isso entre era depois sem mesmo aos foi são você está tem pode",
    "fr": "le la les de des et en un une est que qui dans pour pas sur au avec ce il elle ne se plus par je vous nous "
    "mais ou où son sa ses être cette aux comme sont leur ont fait du été très même peut c'est d'un d'une",
    "de": "der die das und in zu den von mit sich des auf für ist im dem nicht ein eine als auch es an werden aus er hat "
    "dass sie nach wird bei einer um am sind noch wie einem über einen so zum war haben nur oder aber vor zur",
    "it": "il lo la i gli le di che e in un una è per con non si del della dei delle da al alla come più ma anche sono "
    "nel nella questo questa ha se su ci hanno essere stato molto quando perché dove tra fra può l'uomo dell'",
    "nl": "de het een en van in is dat op te zijn met voor niet aan er ook als door maar om bij of naar over uit dan nog "
    "wordt heeft deze kan worden hij zij je we ik wat hebben meer geen was hun tot veel waar wel onder",
    "pl": "w i na z do nie się że to jest o jak za od po ale dla ma by co być są przez przy lub oraz tak już czy jego jej "
    "tego które który która może tylko pod ich tym jako bardzo jeśli kiedy aby więc ze we był było można",
    "fi": "ja on ei se että hän oli mutta ovat tai kun kuin ole myös jos niin mitä joka jotka tämä siitä minä sinä me he "
    "olla sen hänen vain voi nyt sitten ne tämän ollut kanssa jo vielä sekä mukaan koska hyvin kaikki itse tässä",
    "vi": "của và là có trong cho được với các một không những để này người đã khi từ về như cũng đến ra sẽ tôi bạn nhiều "
    "phải nếu thì vào làm lại còn rất theo đó trên hay hơn nên vì đang mà nó ở nhất chúng tại sau",
    "sw": "na ya wa kwa ni za katika la hii cha kuwa pia au kama hiyo yake ambayo kutoka watu hivyo lakini zaidi moja sana "
    "huu huo wao wake yao baada kabla hapa ili bila kila hata vya mtu wengi yetu wetu tu sisi mimi wewe yeye",
    "sv": "och att det i en som på är av för med den till inte har de om ett men var så från kan när hade ska eller vi vid "
    "också jag hon han sig denna efter mycket under ut mot sin sina där vara blir bara alla över då nu sitt",
    "tr": "ve bir bu da de için ile çok olarak daha olan gibi en kadar ne var ama o mi ise her sonra veya değil ancak bunu "
    "ya onun benim ben sen biz şey nasıl hem tarafından göre olduğu iki ki bunun diye oldu olur önce yani",
    "id": "yang dan di ini itu dengan untuk tidak dari dalam akan pada juga saya ke karena ada mereka kami bisa oleh atau "
    "adalah sebagai sudah anda lebih seperti telah dapat kita bahwa saat banyak harus tersebut hanya orang kepada",
}
_CYRILLIC = {
    "ru": "и в не на что с он как это по но к у из за от так же для вы мы они она бы его все то было быть о только или "
    "если уже ещё когда чтобы есть их при где который которые может очень этот эта эти был была были",
    "uk": "і в не на що з він як це по але до у із за від так же для ви ми вони вона би його все та було бути про тільки "
    "або якщо вже ще коли щоб є їх при де який які може дуже цей ця ці був була були також й",
    "bg": "и в не на че с той как това по но към у от за така да се са си ще ви ние те тя би го всички беше бъде само или "
    "ако вече още когато е им при където който които може много този тази тези бил била били също",
}
_ARABIC = {
    "ar": "في من على إلى أن هذا هذه التي الذي عن مع كان لا ما هو هي أو كل ذلك بين قد كما لم هناك بعد عند حيث إذا يمكن "
    "أي كانت وهو ولا حتى غير فيها منها عليه له لها ثم نحن أنا أنت كما منذ خلال يكون",
    "fa": "و در به از که این را با است برای آن یک خود تا بر هم نیز می ما شما او آنها اما یا هر بود شد کرد دارد کنید شده "
    "باید اگر چه همه دو نیست من تو باشد بسیار پس بین وی های ها کند کنند هستند می‌شود می‌کند",
    "ur": "اور کے میں کی ہے سے کا کو نے پر یہ کہ ایک بھی ہیں نہیں جو اس وہ کیا ہو تو تھا کر لئے لیے ہم آپ اپنے ان ساتھ "
    "گیا کسی ہی تھے بعد کچھ جب اگر تک تھی ہوتا کرنے والے بہت ہوئے جا رہے مگر یا سب",
}
_DEVANAGARI = {
    "hi": "के में की है से का को ने पर यह कि एक भी हैं नहीं जो इस वह और हो तो था कर लिए हम आप अपने उन साथ गया किसी ही थे "
    "बाद कुछ जब अगर तक थी होता करने वाले बहुत हुए जा रहे या सब इसके मैं",
    "mr": "आहे आणि या च्या मध्ये ते तर हे एक आहेत नाही तो ती की होते होता साठी पण आपण किंवा केले झाले असे त्या मी आम्ही "
    "तुम्ही खूप जर काही सर्व हा ही त्यांच्या आपल्या करण्यासाठी असतात असते म्हणून त्याच्या करा येथे",
    "ne": "छ र को मा छन् यो पनि हो त्यो एक लागि थियो गर्न भएको हुन् गर्नु तर हामी तपाईं म उनी धेरै यदि वा सबै आफ्नो गरेको "
    "भने हुन्छ देखि सम्म बाट ले लाई छैन थिए गर्छ गर्ने कुनै अनि हुने जब के यस",
}
STOPWORDS: dict[str, dict[str, frozenset[str]]] = {
    script: {code: frozenset(listed.split()) for code, listed in table.items()}
    for script, table in (
        ("latin", _LATIN),
        ("cyrillic", _CYRILLIC),
        ("arabic", _ARABIC),
        ("devanagari", _DEVANAGARI),
    )
}
"""script -> language -> its common words."""
