"""Draws demo/evening.jpg (needs numpy and pillow): ridges at dusk, with enough grain to weigh what a photograph weighs.

The picture and this script are dedicated to the public domain (CC0 1.0).
"""

import numpy as np
from PIL import Image
rng=np.random.default_rng(4667)
W,H=3600,2400
y=np.linspace(0,1,H)[:,None]; x=np.linspace(0,1,W)[None,:]
def mix(a,b,t): return np.array(a)[None,None,:]*(1-t[...,None])+np.array(b)[None,None,:]*t[...,None]
t=np.clip(y*1.5,0,1)*np.ones((1,W))
sky=mix([28,38,84],[250,150,96],t**1.3)
# sun
d=np.hypot((x-.68)*1.5,(y-.50)); sky+=np.exp(-(d/.05)**2)[...,None]*np.array([255,220,150])*.9+np.exp(-d*5)[...,None]*np.array([120,60,10])*.6
# stars
for _ in range(900):
    sx,sy=rng.integers(0,W),int(rng.random()**2*H*.45); b=rng.random()**3*170
    sky[sy:sy+2,sx:sx+2]+=b
img=sky
def ridge(oct,seed,rough):
    r=np.random.default_rng(seed); h=np.zeros(W); xs=np.linspace(0,1,W)
    for o in range(oct):
        f=2**o; n=r.standard_normal(f*4+4); h+=np.interp(xs*f*3,np.arange(len(n)),n)*rough**o
    return h
layers=7
for i in range(layers):
    k=i/(layers-1)
    h=.50+.07*i+ridge(10,100+i,.52)*(.05-.003*i)
    mask=(y>h[None,:])
    base=np.array([196,110,110])*(1-k)+np.array([10,16,28])*k
    fade=np.clip((y-h[None,:])/.22,0,1)
    col=base[None,None,:]*(1-fade[...,None]*.35*(1-k)) + np.array([240,150,110])[None,None,:]*(fade[...,None]*.28*(1-k))
    img=np.where(mask[...,None],col,img)
# lake glint
img+=rng.normal(0,5.2,(H,W,1))+rng.normal(0,2.0,(H,W,3))
Image.fromarray(np.clip(img,0,255).astype('uint8')).save('evening.jpg',quality=93)
