"""The built-in corpus: made-up Chinese headlines in four classes, for a first run without any data.

Every headline is put together from the word lists and patterns below, all of them our own writing;
people, teams, films and nearly all brands are invented. A fixed seed makes the corpus the same on
every machine and Python.

It is meant to be hard enough that a broken training shows: the classes share their vocabulary, some
patterns fit several classes, and a few labels are wrong, as in real data.
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from bert_lightning.data.records import SPLITS, Record, Split

CORPUS_CLASSES = ("体育", "娱乐", "家居", "科技")
ROWS_PER_CLASS = 5_000
CORPUS_VERSION = 1  # goes up with every change of a title or label

SPLIT_ROWS: dict[Split, int] = {"train": 4_000, "val": 500, "test": 500}
LENGTHS = range(8, 31)
NOISE = 0.04  # share of titles with the label of another class
VAGUE = 0.06  # share of titles that would fit another class as well
SUFFIXED, PREFIXED = 0.12, 0.04
SEED = 20_260

T = TypeVar("T")

# slot: its words. A word may hold slots itself.
_WORDS = """
城: 北京 上海 广州 深圳 成都 杭州 武汉 南京 西安 重庆 青岛 大连 厦门 苏州 长沙 昆明
姓: 闻 柏 楚 季 简 路 纪 舒 容 褚 骆 祁 桑 温 乔 莫 凌 叶
名: 望舒 知遥 岚舟 亦航 听雨 南乔 牧野 予安 青禾 北辰 思远 小满 若谷 之恒 晚晴 一川 子墨 云起
名: 砚 岑 芷 朗 屿 桐 樾 湛 霁
人: {姓}{名}
外: 卡尔托 莫里塔 桑贝克 托雷诺 维克隆 巴鲁西 德伦科 阿米拉 奥斯纳 帕文迪 雷格森 佐恩
队: 蓝鲸队 云城队 北岭队 山鹰队 星河队 海东队 雪豹队 铁桥队 金港队 南屿队 赤狐队 白塔队
赛: 联赛 杯赛 热身赛 季后赛 半决赛 资格赛 公开赛 邀请赛 锦标赛 大奖赛
项: 短道速滑 羽毛球 乒乓球 女排 男篮 游泳 跳水 田径 射箭 举重 网球 击剑 赛艇 体操
位: 前锋 后卫 门将 中场 主帅 队长 新援 老将 小将 中锋
伤: 脚踝 膝盖 腰部 肩部 大腿 手腕
片: 《长巷灯火》 《第七封信》 《雪豹》 《云上客厅》 《苹果树下》 《主场》 《超级芯片》 《木地板》
片: 《夏至来信》 《星河列车》 《决赛之夜》 《卧室里的海》 《代码情书》 《门将的妻子》
会: 星光盛典 跨年晚会 慈善晚宴 颁奖礼 首映礼 电影节 音乐节 粉丝见面会
艺: 影后 影帝 歌手 导演 演员 主持人 编剧 新人 天后 童星
曲: 新单曲 新专辑 主打歌 电影主题曲 情歌 翻唱曲
具: 沙发 衣柜 橱柜 茶几 餐桌 书架 床垫 电视柜 鞋柜 吊灯 窗帘 地毯 梳妆台 餐椅
材: 实木地板 瓷砖 乳胶漆 壁纸 硅藻泥 石膏线 大理石 复合板材 木器漆 护墙板
房: 客厅 卧室 厨房 卫生间 阳台 玄关 书房 儿童房 餐厅 衣帽间
风: 北欧 新中式 田园 地中海 极简 复古 混搭 日式 工业 法式
色: 苹果绿 雾霾蓝 奶油白 原木色 珊瑚红 柠檬黄 浅灰 薄荷绿
宅: 木里 宅语 安榻 柏居 暖筑 归屿 素舍 星河
牌: 澜科 极序 拓音 维朗 森图 奇算 白塔 苹果 星河
品: 手机 笔记本 平板电脑 单反相机 数码相机 耳机 路由器 投影仪 显示器 智能手表 智能音箱 显卡 电视
型: X{1~9}0 Pro{2~9} T{100~990} S{2~30} Air{2~6} V{1~9}00 M{10~99} Z{2~9}
系: 鸿道系统 安卓新版 iOS测试版 云端助手 语音助手 浏览器 输入法 地图App 支付App
研: 黑洞 火星土壤 恐龙化石 深海热泉 量子芯片 石墨烯 人造卫星 极光 蛋白质结构 锂电池
点: 亮点 细节 看点 误区 变化 提醒 疑问
"""

# One or more patterns a line.
_SPORT = """
{队}{70~119}-{70~119}{队} {外}末节独得{10~25}分 | {外}砍下{20~48}分{8~19}篮板 {队}终结{3~9}连败
裁判漏判点球 {队}主帅{人}向{赛}组委会申诉 | {项}世锦赛落幕 中国队收获{2~12}金{1~9}银
NBA式防守奏效 {队}半场领先{队}{5~28}分 | {队}更衣室起风波 {位}{外}被下放预备队
{队}新帅上任首战告负 {位}{人}染红离场 | 选手村床垫太软 {项}选手{人}睡地板备战
{队}{0~5}-{0~4}{队} {位}{外}梅开二度 | {赛}第{3~30}轮前瞻：{队}欲在{城}抢分
{片}剧组到场观战 {队}主场{1~4}-0取胜 | 国青{城}集训名单公布 {队}{2~6}人入选
{品}进更衣室 {队}{位}{人}看数据训练 | {项}{赛}：{人}连胜两局晋级{4~16}强
{队}客场遭逆转 主帅{人}：输在体能 | {人}{伤}受伤缺席{赛} {队}锋线告急 | {人}宣布退役：{伤}已撑不住了
{位}{人}复出在即 {队}冲击{赛}资格 | U{17~23}国足{城}集结 {人}领衔中场 | {赛}抽签揭晓：{队}与{队}同组
{队}用{品}看录像 {位}{人}直言有效 | {艺}{人}看台助威 {队}点球险胜{队} | {牌}杯{项}{赛} {人}爆冷出局
{宅}赞助{队}新球衣 {外}穿{2~39}号 | 赛前吃苹果补能量 {项}小将{人}摘金
{人}从{会}赶回 替补登场助{队}取胜 | {城}球馆换新地板 {队}{赛}下周开打
{队}官宣签下{位}{外} 合同{2~5}年 | {城}马拉松鸣枪 {人}打破赛会纪录 | {人}夺{项}冠军 教练称赞心理素质
{项}名将{人}转战{城} 备战全运会 | {艺}{人}为{队}开球 {外}补时破门 | {牌}手表计时 {人}{项}预赛破纪录
{外}挺进{赛}四强 {人}首轮出局 | {外}伤愈归队 {队}主场迎战{队}
"""

_SHOW = """
{艺}{人}豪宅{房}曝光 与{人}同居传闻再起 | {人}{城}演唱会加场 门票{2~30}分钟售罄
{片}重映 {艺}{人}忆{5~30}年前拍摄往事 | 前国脚{人}献唱{会} 与{艺}{人}合作{曲}
{片}票房破{2~19}亿 {艺}{人}发文致谢 | {人}与{人}婚讯曝光 工作室：谢谢祝福
{人}{人}戏里戏外皆默契 粉丝盼再合作 | {艺}{人}提名最佳新人 笑称紧张到失眠
{人}晒{风}风新家 {艺}{人}留言送祝福 | {片}全程用{品}拍摄 {艺}{人}亲自掌镜
{人}拍{片}减重{5~20}斤 直言不后悔 | {片}主创做客{城}大学 {人}大谈角色 | {人}发布{曲} 写给{城}的歌迷
狗仔拍到{人}夜归 经纪人：剧组聚餐 | {人}拍{片}苦练{项} {伤}受伤仍坚持 | {人}凭{片}封后 哽咽感谢家人
{项}冠军{人}跨界演戏 {片}首映被赞 | {人}手机铃声泄密 {会}上被逼唱{曲} | {艺}{人}否认恋情：只是朋友
{片}曝{2~6}支预告 {人}吻戏引热议 | {人}产后复出 {曲}登排行榜第{1~9} | {片}定档{1~12}月 {人}挑战反派
{艺}{人}加盟综艺 与{人}搭档主持 | {艺}{人}代言{牌} 见面会大跳热舞 | {人}坐{具}上唱{曲} 慵懒造型惹眼
{人}在{片}里种苹果 {艺}{人}探班 | {艺}{人}亮相{会} {色}礼服抢镜 | {艺}{人}深夜发文 疑似回应分手
{人}MV造型曝光 短发搭{色}西装 | {位}{外}客串{片} 与{人}演情侣 | {艺}{人}{会}送苹果 祝歌迷平安
{会}红毯：{人}牵手{艺}{人} | {片}{城}开机 {人}首演警察 | {人}清唱{曲} {会}全场落泪
{人}直播摔坏{品} 粉丝笑翻
"""

_HOME = """
{宅}{材}获环保认证 甲醛释放量降{10~60}% | {1~9}万元装修{30~140}平婚房 {风}风满分
{30~60}平小户型收纳术 一只{具}腾空{房} | 演唱会海报上墙 {30~90}平{风}{房}玩撞色
{30~140}平米{风}两居室 {色}{房}真清爽 | {宅}{具}签约{项}冠军{人} {城}门店促销
{材}{房}渗水怎么办 {2~6}个{点}要记牢 | 儿童{具}安全抽检 {城}{2~9}批次不合格
装修季{材}涨{2~30}% {城}建材市场走访 | 手机控制{具} {房}改造花了{2~19}千元
{宅}{材}含水率怎么看 {城}老师傅支招 | {风}风{房}设计 {2~9}招打造{色}空间
{宅}{具}{城}旗舰店开业 全场{3~9}折 | {风}{具}选购有窍门 {2~9}步避开误区
{风}{房}灯光布置：{具}旁留一盏暖光 | 苹果木{具}纹理温润 {宅}{城}店到货 | {片}同款{房} {风}风这样布置
{风}{房}铺{材}好不好 设计师这样说 | {城}雨季{具}保养指南：{房}先除霉 | {艺}{人}同款{具} 小户型也能摆
{风}软装课：{色}{具}与绿植的距离 | {风}风电视墙用{材} {房}有影院感 | {色}{具}搭配{风}{房} 春天搬回家
{宅}推出{风}系列 {具}可自由组合 | 果盘里的苹果 让{风}{房}多点{色} | {房}装{品}先布线 {材}开槽要留心
{房}藏起{品}电线 {具}打孔有讲究 | {牌}面板嵌入{具} {风}{房}更整洁 | 给{项}爱好者的家 {房}地面选{材}
看球夜{风}{具}怎么摆 {房}变主场 | {房}飘窗巧改{具} 多出{2~6}平米 | {材}铺贴验收 {2~9}个{点}别忽视
球星{人}的{风}{房}：{具}全定制 | {城}家博会：{宅}{具}签单领跑 | {城}老房翻新日记：{材}换{材}
"""

_TECH = """
{研}研究获突破 {城}实验室公布{2~30}组数据 | 苹果发布新款iPhone {城}{20~900}名果粉排队
果园用上AI摘苹果 {城}机器人每天{2~90}亩 | {牌}{型}评测：{品}屏幕亮度提升{10~60}%
{4~64}GB内存 {牌}{品}{型}仅{8~69}99元 | {城}{研}照片公布 {2~90}万网友：太震撼
{牌}投影仪把{房}变影院 售{12~89}99元 | {片}特效改用{牌}显卡 渲染提速{2~9}倍
{牌}{型}降至{8~69}99元 {品}入门之选 | 科学家发现{研}新证据 距今{2~90}万年
{牌}季度财报：{品}出货{200~990}万台 | {牌}智能家居{型}首发 {具}灯光可联动
{系}被曝收集{2~90}万人隐私 官方致歉 | {牌}{型}运动手表上市 可记录{项}心率
智能{具}内置{牌}{型}芯片 语音可开关 | {牌}{品}{型}开卖 首发价{12~89}99元 | {系}更新 修复{2~30}处漏洞
{1200~6400}万像素 {牌}{型}{品}曝光 | {牌}发布{型}{品} 续航达{8~48}小时 | {牌}CEO{人}：{品}不打价格战
{牌}{品}召回{2~60}万台 电池存隐患 | {牌}{型}支持{研}材料散热 轻薄机身
{赛}启用{牌}AI {2~60}毫秒识别越位 | {艺}{人}代言{牌}{型} {品}预约破万
{队}同款耳机开售 {牌}{型}主动降噪 | {牌}扫地机器人{型}升级 能识别{材}
{品}促销：{牌}{型}直降{2~19}00元 | 苹果{型}新机谍照 摄像头有{2~5}颗 | {系}用户破{2~9}亿 {牌}股价走高
{2~16}核处理器 {牌}{型}跑分领先 | {城}开通{2~90}个5G基站 网速提升 | {牌}起诉{牌}侵权 {品}专利成焦点
{系}上线{项}直播 {牌}服务器扩容 | {城}{人}团队{研}论文登国际期刊 | VR版{片}体验 {牌}头显{型}首测
"""

# First characters of the classes that a pattern may stand for, then the pattern.
_VAGUE = """
体娱 {人}现身{城}机场 回应近期传闻
体娱 {人}坦言压力大：想休息{2~9}个月
体娱 {人}{城}庆生 {20~90}名粉丝到场
体娱 {人}与公司解约 下一站或是{城}
体娱 {外}抵达{城} {20~900}人接机挤满大厅
体娱 {人}获年度人物 感谢{人}一路陪伴
家科 {城}展会开幕 {20~90}款新品抢先看
家科 {宅}智能新品到货 {城}首批{100~900}台
家科 {城}人选购支招：{2~9}个{点}看清再下单
家科 {3~29}99元起 {城}门店促销{2~9}天
家科 静音又节能 {城}用户试用{2~30}天
娱家 {人}新居照片流出 网友直呼温馨
娱家 {城}老洋房往事 {人}讲述幕后
娱科 {人}新作上线首日 点击破{2~90}万
娱科 直播间崩了 {人}致歉{20~900}万网友
体科 数据说话：{人}{城}测试再创新高
体家 {城}老体育馆翻新 {200~900}张座椅换成{色}
体娱家科 {城}{1~12}月盘点：{2~9}个{点}
体娱家科 {人}的{2~30}年：从{城}到{城}
体娱家科 {城}探访手记 {人}说了{2~9}个{点}
"""


def _table(text: str) -> dict[str, list[str]]:
    """Read ``key: word word …`` lines; lines of one key add up."""
    table: dict[str, list[str]] = {}
    for line in text.strip().splitlines():
        key, words = line.split(": ")
        table.setdefault(key, []).extend(words.split())
    return table


WORDS = _table(_WORDS)
PATTERNS = {
    name: re.split(r" \| |\n", text.strip())
    for name, text in zip(CORPUS_CLASSES, (_SPORT, _SHOW, _HOME, _TECH), strict=True)
}
_VAGUE_LINES = [line.split(" ", 1) for line in _VAGUE.strip().splitlines()]
VAGUE_PATTERNS = {
    name: [pattern for initials, pattern in _VAGUE_LINES if name[0] in initials]
    for name in CORPUS_CLASSES
}


def _pick(rng: random.Random, items: Sequence[T]) -> T:
    """Draw one item; `random()` alone, because Python keeps its sequence stable."""
    return items[int(rng.random() * len(items))]


def _fill(rng: random.Random, pattern: str) -> str:
    """Replace each ``{slot}`` by a word and each ``{low~high}`` by a whole number."""

    def value(match: re.Match[str]) -> str:
        low, is_range, high = match[1].partition("~")
        if is_range:
            return str(_pick(rng, range(int(low), int(high) + 1)))
        return _fill(rng, _pick(rng, WORDS[low]))

    return re.sub(r"\{(.+?)\}", value, pattern)


def _headline(rng: random.Random, topic: str) -> str:
    """Make up one headline about a topic."""
    patterns = VAGUE_PATTERNS if rng.random() < VAGUE else PATTERNS
    return _fill(rng, _pick(rng, patterns[topic]))


def _decorated(rng: random.Random, headline: str) -> str:
    """Add what news sites add to some headlines, in front and behind."""
    before = _pick(rng, ("组图：", "快讯：", "独家：", "视频：")) if rng.random() < PREFIXED else ""
    after = _pick(rng, ("（图）", "(图)", "（组图）", "(组图)")) if rng.random() < SUFFIXED else ""
    return before + headline + after


def _titles(rng: random.Random, label: str, seen: set[str]) -> Iterator[str]:
    """Yield new titles for a label without end; now and then one about another topic."""
    others = [name for name in CORPUS_CLASSES if name != label]
    while True:
        headline = _headline(rng, _pick(rng, others) if rng.random() < NOISE else label)
        title = _decorated(rng, headline)
        if len(title) in LENGTHS and headline not in seen:
            seen.add(headline)
            yield title


def _shuffle(rng: random.Random, items: list[T]) -> None:
    """Fisher-Yates shuffle in place."""
    for last in range(len(items) - 1, 0, -1):
        other = int(rng.random() * (last + 1))
        items[last], items[other] = items[other], items[last]


@functools.cache
def _corpus() -> dict[Split, tuple[Record, ...]]:
    """Make up all splits at once, so that no title comes twice."""
    rng = random.Random(SEED)
    seen: set[str] = set()
    streams = {label: _titles(rng, label, seen) for label in CORPUS_CLASSES}
    corpus: dict[Split, tuple[Record, ...]] = {}
    for split in SPLITS:
        rows = [
            (next(streams[label]), label)
            for label in CORPUS_CLASSES
            for _ in range(SPLIT_ROWS[split])
        ]
        _shuffle(rng, rows)
        corpus[split] = tuple(
            Record(text, label, f"built-in/{split}", line)
            for line, (text, label) in enumerate(rows, start=1)
        )
    return corpus


def made_up_news(split: Split) -> list[Record]:
    """Return a split of the built-in corpus, shuffled: 4,000 titles a class, or 500 (val, test)."""
    return list(_corpus()[split])


def write_corpus(folder: Path) -> None:
    """Write ``train.txt``, ``val.txt`` and ``test.txt``, one ``title<SPACE>label`` a line.

    Args:
        folder: Where to; it is created if need be.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        lines = [f"{record.text} {record.label}\n" for record in made_up_news(split)]
        (folder / f"{split}.txt").write_text("".join(lines), encoding="utf-8", newline="\n")
