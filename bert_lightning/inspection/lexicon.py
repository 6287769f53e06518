"""Names of the usual news classes and words that speak for each, to tell names from titles.

The 14 classes are those of THUCNews. The words are general knowledge of what such news are about,
taken from no data set; they need not be complete, only to speak for one class more than for others.
"""

from __future__ import annotations

import re

# What a class is called: Chinese first, the other names after it.
_ALIASES = {
    "财经": "finance financial economy economic economics 金融 经济 理财",
    "彩票": "lottery 彩票开奖",
    "房产": "realty estate realestate house housing property 房地产 楼市 地产",
    "股票": "stock stocks 股市 证券",
    "家居": "home furniture furnishing 家装 家具 装修",
    "教育": "education edu 考试 高考",
    "科技": "science tech technology sci it digital 科学 数码 互联网",
    "社会": "society social 民生",
    "时尚": "fashion 美容 时装",
    "时政": "politics political affairs 政治 政务 国内 国际",
    "体育": "sport sports 运动",
    "星座": "constellation constellations horoscope astrology 占星 运势",
    "游戏": "game games gaming 电竞 网游",
    "娱乐": "entertainment ent amusement 明星 影视",
}

WORDS = {
    "财经": "基金 央行 人民币 汇率 美元 银行 利率 通胀 cpi gdp 期货 黄金 金价 原油 期油 信托"
    " 理财 保险 债券 国债 信用卡 货币 净值 私募 qdii 外汇 加息 降息 准备金 财政 信贷"
    " 社保 期铜 豆油 棉花 白糖",
    "彩票": "彩票 双色球 大乐透 福彩 体彩 开奖 中奖 头奖 彩民 奖池 投注 号码 足彩 胜负彩 任九"
    " 排列三 排列五 七乐彩 竞彩 选号 红球 蓝球 冷号 胆码",
    "房产": "楼市 楼盘 房价 房地产 平米 均价 户型 公寓 地块 住宅 二手房 购房 买房 限购 限价房"
    " 廉租房 保障房 居室 两居 三居 2居 3居 精装 地产 房企 入住 样板间 写字楼 商铺 万科"
    " 现房 期房 复式 容积率 业主 置业 新盘 元/平 物业 地王 别墅 首付 房贷 楼面价",
    "股票": "a股 b股 h股 沪指 大盘 涨停 跌停 个股 股市 上证 深证 创业板 港股 美股 恒指 道指"
    " 纳指 券商 减持 增持 停牌 复牌 股东 上市公司 牛市 熊市 收盘 早盘 午盘 尾盘 板块"
    " 股份 新股 ipo 股价 股权 重组 评级 每股 两市 股指 定向增发 机构 净利 中报 年报"
    " 季报 认股证",
    "家居": "家具 家居 装修 橱柜 地板 卫浴 瓷砖 沙发 客厅 卧室 床垫 建材 涂料 灯具 家装 厨房"
    " 壁纸 墙纸 窗帘 浴室 衣柜 收纳 软装 小户型 实木 花洒 马桶 油漆 陶瓷 吊顶 布艺 餐厅"
    " 小家 阳台 书房 卫生间 家纺 风格 混搭 儿童房 新居 整体厨 板材",
    "教育": "高考 考研 大学 考试 录取 考生 招生 英语 四六级 四级 六级 留学 学生 高校 志愿 作文"
    " 学校 雅思 托福 公务员 中考 院校 分数线 毕业 教育 mba 自考 博士 硕士 研究生 老师"
    " 教师 课程 词汇 复习 备考 真题 招考 学历 学费 语文 本科 专科 听力 专业 报名 奖学金"
    " 名师",
    "科技": "手机 笔记本 相机 苹果 谷歌 微软 iphone ipad 诺基亚 安卓 android 互联网 电脑 处理器"
    " 芯片 软件 科学家 卫星 索尼 三星 单反 像素 英特尔 intel 联通 电信 3g 4g 运营商"
    " 网站 百度 腾讯 阿里 火星 太空 宇航 物种 行货 智能 佳能 尼康 镜头 液晶 显卡 硬盘"
    " 惠普 戴尔 联想 神舟 宽带 电子商务 微博 机器人 化石 恐龙 双核 四核 触控 wifi"
    " 上网本 摩托罗拉 套机 人类 地球",
    "社会": "男子 女子 警方 民警 警察 嫌犯 嫌疑 杀人 杀害 车祸 身亡 死亡 被捕 抢劫 偷 派出所"
    " 获刑 判刑 儿子 丈夫 妻子 女儿 老人 女孩 男孩 男童 女童 村民 坠 骗 自杀 被救 醉酒"
    " 法院 情人 小偷 强奸 尸体 殴打 司机 少年 少女 女生 男生 母亲 父亲 被判 被拘 打死"
    " 捅 砍 殴 绑架 岁女 岁男 老太 老汉 私奔 邻居",
    "时政": "总统 总理 外长 外交部 国务院 两会 选举 访华 首相 国家主席 中央 议会 会谈 人大 政协"
    " 省委 书记 市长 部长 纪委 反腐 联合国 公报 国台办 恐怖 发改委 袭击 以色列 巴勒斯坦"
    " 伊拉克 阿富汗 朝鲜 军方 国防部 奥巴马 台湾 地震 国会 大使 党 官员 制裁 导弹 核"
    " 政府 军队 海军 条例 国家 部委 代表团 卫生部 大选",
    "时尚": "时尚 美容 护肤 时装 彩妆 搭配 裙 发型 美白 保湿 唇 香水 珠宝 名表 腕表 奢侈 潮人"
    " 减肥 瘦身 春夏 秋冬 单品 街拍 妆 面膜 达人 肌肤 防晒 眼影 美甲 丝袜 高跟鞋 穿搭"
    " 时髦 混搭 婚纱 服饰 抗皱 风衣 t台 丰胸 型男 首饰 钻石 皮肤",
    "体育": "联赛 球队 主场 客场 进球 nba 火箭 湖人 姚明 科比 詹姆斯 国足 欧冠 英超 西甲 意甲"
    " 德甲 中超 cba 教练 主帅 球员 夺冠 决赛 奥运 世界杯 冠军 赛季 曼联 皇马 巴萨 国米"
    " 热火 公开赛 网球 乒 篮 足球 季后赛 首发 转会 米兰 阿森纳 切尔西 利物浦 拜仁"
    " 锦标赛 预选赛 亚冠 女排 男篮 女篮 田径 刘翔 f1 快船 魔术 马刺 凯尔特人 奇才 掘金"
    " 小牛 太阳 球迷 球星 前锋 后卫 门将 上港 恒大 国安 申花 世预赛 斯诺克 赛场",
    "星座": "星座 白羊 金牛座 双子座 巨蟹 狮子座 处女座 天秤 天蝎 射手座 摩羯 水瓶座 双鱼 运势"
    " 塔罗 占星 生肖 算命 桃花运 属相 十二宫",
    "游戏": "网游 游戏 玩家 公测 内测 副本 服务器 魔兽 暴雪 pvp 新服 开服 资料片 任务 装备 电竞"
    " wow 引擎 技能 更新公告 mmo 星际 争霸 ps3 xbox 截图 封测 怪物 dota 帮派 武侠 征途"
    " 传奇 梦幻 西游 online 激活码 职业 刺客 法师 战士 骑士 公会 英雄 宠物 暗黑 仙 网页"
    " 原画 游记 测试 客户端",
    "娱乐": "电影 电视剧 演唱会 主演 导演 票房 歌手 专辑 影片 明星 艺人 绯闻 上映 首映 剧组"
    " 拍摄 影帝 影后 金马奖 金像奖 综艺 演员 热播 新剧 女星 男星 歌迷 粉丝 偶像 婚 女友"
    " 男友 拍戏 片酬 荧屏 首播 收视 奥斯卡 好莱坞 预告片 海报 唱片 新歌 周杰伦 刘德华"
    " 范冰冰 林志玲 谢霆锋 电视台 主持 话剧 出道",
}

# Sections that share so many words that titles do not tell them apart.
_KIN = ({"财经", "股票"}, {"社会", "时政"}, {"娱乐", "时尚"})

_ADDED = re.compile(r"^(?:news|cnews|class)[_\-\s]+|(?:新闻|频道|类|资讯)$")
_TOPICS = {name: topic for topic, others in _ALIASES.items() for name in (topic, *others.split())}


def topic_of(class_name: str) -> str | None:
    """Return which of the 14 classes a name stands for, or None if for none of them.

    >>> topic_of("news_sports"), topic_of("体育新闻"), topic_of("汽车")
    ('体育', '体育', None)
    """
    return _TOPICS.get(_ADDED.sub("", class_name.strip().lower()).replace(" ", ""))


def are_kin(topic: str, other: str) -> bool:
    """Tell whether titles of two classes are too much alike to tell one name from the other."""
    return any({topic, other} <= kin for kin in _KIN)


def word_pattern(topic: str) -> str:
    """Return a regular expression that finds words of a class in lower-cased text."""
    return "|".join(map(re.escape, WORDS[topic].split()))
